"""Render the least certain predictions of unlabelled images, and what spoke for them, as an HTML page."""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.measures.uncertainty import Candidate
from train_pytorch_model.pages.evaluation_page import HEAT_NOTE
from train_pytorch_model.pages.gallery import Card, Fact, Gallery, Heat
from train_pytorch_model.pages.page import render_page, thumbnail

PAGE = "explained.html"
TEXT = "The images of which the first two categories are the closest, the closest first."


def render_explained(
    spec: ClassifierSpec,
    images: ImageDirectory,
    candidates: Sequence[Candidate],
    heats: Sequence[Heat | None],
) -> str:
    """Render the page of these images and the heat of each. Names may contain anything."""
    originals = images.original_names(np.array([each.index for each in candidates], np.int64))
    cards = [
        Card(
            [thumbnail(images.path(each.index), spec.framing.colours)],
            [
                Fact(label, spec.categories[category], f"{probability:.1%}")
                for label, category, probability in zip(
                    ("predicted", "or"), each.top, each.probabilities, strict=True
                )
            ],
            [original or images.file_names[each.index]],
            heat,
        )
        for each, original, heat in zip(candidates, originals, heats, strict=True)
    ]
    return render_page(
        PAGE,
        spec=spec,
        dataset_name=images.root.resolve().name,
        images=len(images),
        gallery=Gallery("uncertain", "Least certain predictions", f"{TEXT} {HEAT_NOTE}", cards),
    )
