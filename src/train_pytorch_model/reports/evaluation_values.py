"""What the pages of an evaluation and of a training both show of an evaluation."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from train_pytorch_model.evaluation import tables
from train_pytorch_model.evaluation.metrics import PERCENTS, Evaluation, Outcomes
from train_pytorch_model.evaluation.single_label_words import describe_baseline
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.evaluation.verdict import describe_trust, verdict
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.reports.chart import line_chart
from train_pytorch_model.reports.confusion_view import confusion_view
from train_pytorch_model.reports.page import shorten

MAX_CELL_FILES = 6  # whose names the page has for a cell of the matrix
MAX_FILES = 200  # right and wrong each, about 40 bytes
MAX_ROWS = 1000  # of the table of categories, with 8 elements each
MAX_PAIRS = 12


def evaluation_values(evaluation: Evaluation, spec: ClassifierSpec) -> dict[str, Any]:
    """Return what the templates show, by the names that they give it."""
    categories = spec.categories
    answers = line_chart(
        "Accuracy of the most confident",
        PERCENTS,
        {"accuracy": evaluation.coverage.accuracies},
        is_percent=True,
        x_name="percent of images answered",
    )
    return {
        "evaluation": evaluation,
        "spec": spec,
        "verdict": verdict(evaluation, categories),
        "trust": describe_trust(evaluation),
        "baseline": (evaluation.baseline, describe_baseline(evaluation, categories)),
        "confusion": confusion_view(evaluation, categories),
        "pairs": tables.confused_rows(evaluation, categories, MAX_PAIRS),
        "rows": tables.worst_first(evaluation, categories)[:MAX_ROWS],
        "bins": evaluation.calibration.bins,
        "answers": answers,
    }


def without_images(counts: np.ndarray, categories: Sequence[str]) -> list[str]:
    """Return the categories with a count of 0 in `counts`, (C,), int64."""
    return [name for name, count in zip(categories, counts, strict=True) if not count]


def files_by_cell(evaluated: EvaluatedImages) -> dict[str, list[str]]:
    """Return names of files in cells of the matrix, the most confident first.

    The key of a cell is `true,predicted`, by class index.
    """
    images = evaluated.images
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes)
    order = np.argsort(-outcomes.confidences, kind="stable")
    is_hit = outcomes.is_hit[order]
    rows = np.concatenate([order[~is_hit][:MAX_FILES], order[is_hit][:MAX_FILES]])
    indices = evaluated.indices[rows]
    originals = images.original_names(indices)
    files: dict[str, list[str]] = {}
    for row, index, original in zip(rows.tolist(), indices.tolist(), originals, strict=True):
        cell = f"{outcomes.targets[row]},{outcomes.predicted[row]}"
        names = files.setdefault(cell, [])
        if len(names) < MAX_CELL_FILES:
            names.append(shorten(original or images.file_names[index]))
    return files
