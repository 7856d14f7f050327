"""`review`: a page of the images that most need a decision of a person, most useful first."""

from collections.abc import Mapping, Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.correcting import Corrections
from train_pytorch_model.datasets.reviewed_images import ReviewedImages
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.corrections import Correction
from train_pytorch_model.formats.listing import comparable
from train_pytorch_model.formats.reading import is_inner_path
from train_pytorch_model.formats.trained_directory import REPORT
from train_pytorch_model.inference.predict import predict
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.quality.review_order import SUSPECT, TWIN, Ranked, rank_images
from train_pytorch_model.reports.page_links import address_of, links_to, pages_about
from train_pytorch_model.reports.review_page import Review, render_review
from train_pytorch_model.reviewing.inputs import Predicted, ReviewInputs, digest_of
from train_pytorch_model.reviewing.items import items_of
from train_pytorch_model.reviewing.judgement import judge


def review(inputs: ReviewInputs, world: World) -> str:
    """Return the page. Raises `InvalidModelDirectoryError` for weights that do not fit."""
    predicted = _predict(inputs.scoring, world)
    rows = inputs.scoring.images.rows[predicted.indices]
    decided = _decided(inputs)
    class_indices = _with_decisions(inputs.reviewed, rows, predicted.names, decided)
    is_open = np.array([name not in decided for name in predicted.names], bool)
    every = rank_images(judge(inputs, predicted, class_indices, is_open), inputs.size)
    ranked = every[: inputs.size]
    items = items_of(inputs, world, predicted, class_indices, ranked)
    shown = ranked[: len(items)]
    expected = sum(one.wrong for one in shown if one.kind in (SUSPECT, TWIN))
    logger.info(_summary(shown, expected))
    model = inputs.scoring.model.root
    earlier = [] if inputs.earlier is None else list(inputs.earlier.rows)
    return render_review(
        Review(
            spec=inputs.scoring.spec,
            dataset_name=inputs.scoring.images.name,
            num_images=len(predicted.names),
            categories=inputs.reviewed.categories,
            items=items,
            earlier=earlier,
            expected_wrong=round(expected),
            report=address_of(model / REPORT, inputs.folder),
            links=links_to(pages_about(model), inputs.folder),
            num_left=len(every) - len(items),
            command=inputs.command,
        )
    )


def _predict(inputs: ScoringInputs, world: World) -> Predicted:
    batches = predict(inputs, "Reviewing", world, hashed=True)
    filled = [batch for batch in batches if len(batch.indices)]
    indices = np.concatenate([batch.indices for batch in filled])
    return Predicted(
        indices=indices,
        names=[inputs.images.file_names[index] for index in indices.tolist()],
        probabilities=np.concatenate([batch.probabilities.astype(np.float32) for batch in filled]),
        features=np.concatenate([batch.features for batch in filled]),
        energies=np.concatenate([batch.energies for batch in filled]),
        hashes=np.concatenate([batch.hashes for batch in filled]),
    )


def decided_categories(earlier: Corrections | None) -> list[str]:
    """Return the categories that were decided on."""
    rows = () if earlier is None else earlier.rows
    return [row.category for row in rows if row.category is not None]


def _decided(inputs: ReviewInputs) -> dict[str, Correction]:
    """Return the earlier decisions by the names of their files, which still have that content."""
    rows = () if inputs.earlier is None else inputs.earlier.rows
    root = inputs.scoring.images.root
    return {
        row.file: row
        for row in rows
        if is_inner_path(row.file) and row.sha256 in ("", digest_of(root / row.file))
    }


def _with_decisions(
    reviewed: ReviewedImages,
    rows: np.ndarray,
    names: Sequence[str],
    decided: Mapping[str, Correction],
) -> np.ndarray:
    """Return the class indices (N,), int64, with the categories that were decided on."""
    class_indices: np.ndarray = reviewed.class_indices[rows].copy()
    index_of = {comparable(name): index for index, name in enumerate(reviewed.categories)}
    for position, name in enumerate(names):
        row = decided.get(name)
        if row is not None and row.category is not None:
            given = class_indices[position]
            class_indices[position] = index_of.get(comparable(row.category), given)
    return class_indices


def _summary(ranked: Sequence[Ranked], expected: float) -> str:
    """Return how many images are on the page, and what they are."""
    if not ranked:
        return "No image needs a decision."
    num_wrong = sum(one.kind in (SUSPECT, TWIN) for one in ranked)
    text = f"{counted(len(ranked), 'image', 'images')} to decide on"
    if num_wrong:
        text += f"; wrong categories among the first {num_wrong:,}: about {expected:.0f}"
    return f"{text}."
