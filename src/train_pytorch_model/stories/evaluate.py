"""Evaluate a model on labelled images."""

import functools
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.inputs.twins import read_image_hashes
from train_pytorch_model.machine.console import logger
from train_pytorch_model.measures import evaluation
from train_pytorch_model.measures.evaluation import Evaluation, Outcomes
from train_pytorch_model.measures.evaluation_directory import (
    META_CONTENT,
    MISTAKES,
    PAGE,
    prediction_rows,
    write_numbers,
)
from train_pytorch_model.measures.twins import compare_with_training
from train_pytorch_model.pages.evaluation_page import files_of_cells, render
from train_pytorch_model.pages.page import galleries_of
from train_pytorch_model.stories.explain import explain_trained
from train_pytorch_model.stories.predict import Predicted, predict_and_write, report_bad_images

OUTPUT = "output"
TITLE = "Evaluating"


def evaluate(inputs: ScoringInputs, output: Path, world: World) -> Evaluation | None:
    """Write the evaluation of all readable images, which have the categories of the model.

    Called on all processes; the main one writes.

    Raises `InvalidModelDirectoryError` for weights that do not fit, `InvalidDatasetError` if too many images
    turn out to be unreadable, `OutputDirectoryError`.
    """
    return predict_and_write(
        inputs, TITLE, world, functools.partial(_write, inputs, output, world.device), hashed=True
    )


def _write(
    inputs: ScoringInputs, output: Path, device: torch.device, predictions: Iterable[Predicted]
) -> Evaluation:
    categories = inputs.spec.categories
    with writing_directory(output, META_CONTENT, OUTPUT) as root:
        outcomes, indices, rejected, hashes = _join(predictions, inputs.images.class_indices)
        left_out = report_bad_images(inputs, rejected, root)
        evaluated = evaluation.evaluate(outcomes, len(categories))

        familiar = compare_with_training(
            read_image_hashes(inputs.model.root), hashes, outcomes.target_ranks == 0
        )
        seen = familiar.describe(evaluated.images) if familiar and familiar.images else ""
        if seen:
            logger.warning(seen)
        mistakes = prediction_rows(outcomes, evaluated.mistakes, inputs.images, indices)
        write_numbers(root, evaluated, categories, mistakes, left_out, familiar)
        galleries = galleries_of(
            evaluated,
            outcomes,
            inputs.images,
            indices,
            inputs.spec.framing.colours,
            functools.partial(explain_trained, inputs, device),
            f"; all are in {MISTAKES}",
        )
        files = files_of_cells(outcomes, inputs.images, indices)
        page = render(
            evaluated, inputs.spec, inputs.images.root.resolve().name, galleries, files, left_out, seen
        )
        (root / PAGE).write_text(page, encoding="utf-8")
    return evaluated


def _join(
    predictions: Iterable[Predicted], class_indices: np.ndarray
) -> tuple[Outcomes, np.ndarray, dict[int, str], np.ndarray]:
    """Return the outcomes, the indices of their images (N,), the unreadable ones, and hashes (N, 16)."""
    outcomes: list[Outcomes] = []
    indices: list[np.ndarray] = []
    hashes: list[np.ndarray] = []
    rejected: dict[int, str] = {}
    for batch in predictions:
        outcomes.append(evaluation.outcomes_of(class_indices[batch.indices], batch.probabilities))
        indices.append(batch.indices)
        hashes.append(batch.hashes)
        rejected |= batch.rejected
    return evaluation.join(outcomes), np.concatenate(indices), rejected, np.concatenate(hashes)
