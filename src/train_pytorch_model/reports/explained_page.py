"""The page of the least certain predictions of unlabelled images, with what spoke for them."""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.quality.to_label import Candidate
from train_pytorch_model.reports.gallery import HEAT_NOTE, Card, Fact, Gallery, Heat
from train_pytorch_model.reports.page import render_page
from train_pytorch_model.reports.pictures import thumbnail

EXPLAINED = "explained.html"
ABOUT_CANDIDATES = (
    f"The images of which the first two categories are the closest, the closest first. {HEAT_NOTE}"
)


def render_explained(
    spec: ClassifierSpec,
    images: ImageDirectory,
    candidates: Sequence[Candidate],
    heats: Sequence[Heat | None],
) -> str:
    """Render the page of these candidates, with the heat of each."""
    indices = np.array([candidate.index for candidate in candidates], np.int64)
    cards = [
        Card(
            pictures=[thumbnail(images.path(candidate.index), spec.framing.colours)],
            facts=_facts(candidate, spec.categories),
            files=[original or images.file_names[candidate.index]],
            heat=heat,
        )
        for candidate, original, heat in zip(
            candidates, images.original_names(indices), heats, strict=True
        )
    ]
    return render_page(
        EXPLAINED,
        spec=spec,
        dataset_name=images.name,
        images=len(images),
        gallery=Gallery("uncertain", "Least certain predictions", ABOUT_CANDIDATES, cards),
    )


def _facts(candidate: Candidate, categories: Sequence[str]) -> list[Fact]:
    first, second = candidate.top
    first_probability, second_probability = candidate.probabilities
    return [
        Fact("predicted", categories[first], f"{first_probability:.1%}"),
        Fact("or", categories[second], f"{second_probability:.1%}"),
    ]
