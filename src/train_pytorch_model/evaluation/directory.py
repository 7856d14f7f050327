"""EvaluationDirectory: the metrics of a model on labelled images; and what they mean, in words.

    _meta.yaml             type: EvaluationDirectory, extension: {}
    metrics.json           what `write_numbers` lists; fractions are from 0 to 1, the loss is in nats:
                             images_like_training_images   null if the model does not know its own
                             accuracy_without_them         on the other images; null without any
                             baseline_accuracy             of always guessing the largest category
                             per_class, calibration, coverage   the rows of these tables
                             most_confused                 at most 100 off-diagonal cells of the matrix, the
                                                           largest first, as `ConfusedRow`
    per_class.csv          `CategoryRow`, by class index: images of the category, those predicted as it
    confusion_matrix.csv   category,<each category>: a row per true category, a column per predicted one
    calibration.csv        `CalibrationBin`: confidences in (lower, upper], with means over their images
    coverage.csv           `CoverageRow`: images of at least a confidence, and how many of them are right
    mistakes.csv           `Prediction`: every wrong one, the most confident first
    evaluation.html        the same as a web page
    bad_images.csv         the images that were left out, if any

A number that is undefined, such as the recall of a category without an image, is null in JSON and
empty in CSV. Macro averages are over the categories that have images or were predicted; there an
undefined number counts as 0, as in scikit-learn.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from train_pytorch_model.evaluation.metrics import (
    CalibrationBin,
    CoverageRow,
    Evaluation,
    Outcomes,
    PerClass,
)
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import table_of, write_csv, write_json
from train_pytorch_model.quality.training_look_alikes import TrainingLookAlikes

META_CONTENT: Mapping[str, Any] = {"type": "EvaluationDirectory", "extension": {}}
CONFUSION_MATRIX = "confusion_matrix.csv"
MISTAKES = "mistakes.csv"
PAGE = "evaluation.html"
MAX_PAIRS = 100


@dataclass(frozen=True)
class CategoryRow:
    """A row of per_class.csv; None where a number is undefined."""

    category: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    predicted: int


@dataclass(frozen=True)
class ConfusedRow:
    """Images of one category that were predicted as another."""

    category: str
    predicted: str
    images: int
    share: float  # fraction of the images of the category


@dataclass(frozen=True)
class Prediction:
    """The prediction for an image; the wrong ones are the rows of mistakes.csv."""

    file_name: str
    category: str
    predicted: str
    confidence: float  # probability of the predicted category
    category_probability: float  # probability of the true category
    original: str = ""  # the file's name before it was copied; empty if unknown


def write_numbers(
    root: Path,
    evaluation: Evaluation,
    categories: Sequence[str],
    mistakes: Iterable[Prediction],
    num_unreadable: int,
    familiar: TrainingLookAlikes | None = None,
) -> None:
    """Write the metrics and all tables of the evaluation; `categories` are the names by class
    index.
    """
    per_class = category_rows(evaluation.per_class, categories)
    metrics = {
        "images": evaluation.images,
        "left_out": num_unreadable,
        "images_like_training_images": familiar.images if familiar else None,
        "accuracy_without_them": familiar.accuracy_without if familiar else None,
        "accuracy": evaluation.accuracy,
        "accuracy_interval": evaluation.accuracy_interval,
        "baseline_accuracy": evaluation.baseline,
        "top5_accuracy": evaluation.top5,
        "balanced_accuracy": evaluation.balanced_accuracy,
        "loss": evaluation.loss,
        **{f"macro_{name}": value for name, value in asdict(evaluation.macro).items()},
        **{f"weighted_{name}": value for name, value in asdict(evaluation.weighted).items()},
        "mean_confidence": evaluation.mean_confidence,
        "expected_calibration_error": evaluation.calibration.error,
        "absent_categories": [row.category for row in per_class if row.support == 0],
        "per_class": [asdict(row) for row in per_class],
        "calibration": [asdict(row) for row in evaluation.calibration.bins],
        "coverage": [asdict(row) for row in evaluation.coverage.rows],
        "most_confused": [asdict(row) for row in confused_rows(evaluation, categories, MAX_PAIRS)],
    }
    write_json(root / "metrics.json", metrics)
    tables = {
        "per_class.csv": table_of(CategoryRow, per_class),
        "calibration.csv": table_of(CalibrationBin, evaluation.calibration.bins),
        "coverage.csv": table_of(CoverageRow, evaluation.coverage.rows),
        MISTAKES: table_of(Prediction, mistakes),
        CONFUSION_MATRIX: confusion_matrix(evaluation, categories),
    }
    for name, rows in tables.items():
        write_csv(root / name, rows)


def confusion_matrix(
    evaluation: Evaluation, categories: Sequence[str]
) -> Iterator[Iterable[object]]:
    """The rows of confusion_matrix.csv, one by one: it may be too large for the memory."""
    yield ["category", *categories]
    for name, row in zip(categories, evaluation.confusion.rows(), strict=True):
        yield [name, *row.tolist()]


def category_rows(per_class: PerClass, categories: Sequence[str]) -> list[CategoryRow]:
    """The rows of per_class.csv, by class index."""
    columns = (getattr(per_class, field.name).tolist() for field in fields(PerClass))
    return [
        CategoryRow(
            category=name,
            precision=precision if predicted else None,
            recall=recall if support else None,
            f1=f1 if support or predicted else None,
            support=support,
            predicted=predicted,
        )
        for name, precision, recall, f1, support, predicted in zip(
            categories, *columns, strict=True
        )
    ]


def worst_first(evaluation: Evaluation, categories: Sequence[str]) -> list[CategoryRow]:
    """The categories by increasing F1, undefined F1 last; among equals, categories with images come
    first.
    """
    rows = category_rows(evaluation.per_class, categories)
    return sorted(rows, key=lambda row: (math.inf if row.f1 is None else row.f1, row.support == 0))


def confused_rows(
    evaluation: Evaluation, categories: Sequence[str], limit: int
) -> list[ConfusedRow]:
    """The `limit` largest confusions, by decreasing number of images."""
    confusion, support = evaluation.confusion, evaluation.per_class.support
    wrong = np.flatnonzero(confusion.targets != confusion.predicted)
    cells = wrong[np.argsort(-confusion.images[wrong], kind="stable")][:limit]
    columns = (
        each[cells].tolist() for each in (confusion.targets, confusion.predicted, confusion.images)
    )
    return [
        ConfusedRow(
            categories[target], categories[predicted], images, images / int(support[target])
        )
        for target, predicted, images in zip(*columns, strict=True)
    ]


def prediction_rows(
    outcomes: Outcomes, rows: np.ndarray, images: ImageDirectory, indices: np.ndarray
) -> list[Prediction]:
    """The predictions of the outcomes at `rows`; `indices` are those of the images of all outcomes."""
    categories, originals = images.categories, images.original_names(indices[rows])
    return [
        Prediction(
            file_name=images.file_names[index],
            category=categories[outcomes.targets[row]],
            predicted=categories[outcomes.predicted[row]],
            confidence=float(outcomes.confidences[row]),
            category_probability=float(outcomes.target_probabilities[row]),
            original=original,
        )
        for row, index, original in zip(rows, indices[rows].tolist(), originals, strict=True)
    ]
