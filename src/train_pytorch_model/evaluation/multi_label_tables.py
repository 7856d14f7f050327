"""The tables of an evaluation of images with any number of categories, and their metrics.json.

metrics.json           as of one category each, without what follows from a single answer, and with
    multi_label                        true
    accuracy                           exact match: all categories of an image, and no other
    mean_average_precision             over the categories that have images
    baseline_mean_average_precision    of guessing
    micro_…, macro_…                   precision, recall and F1 at the thresholds
    top1_accuracy, top5_accuracy       of images with a category: the most probable one, or one
                                       of the five, is among theirs
    loss                               of an image, summed over the categories
    per_class                          the rows of per_class.csv
per_class.csv          `LabelRow`, by class index
calibration.csv        `CalibrationBin`, over all categories of all images
co_occurrence.csv      category,<each category>: images that have both
curves.csv             `CurvePoint`: precision by recall of each category
mistakes.csv           `LabelMistake`: every wrong answer, the most probable first, then every
                       missed label, the least probable first
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.evaluation.metrics import CalibrationBin
from train_pytorch_model.evaluation.multi_label import MultiLabelEvaluation, MultiLabelOutcomes
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.spreadsheet_cells import shown_rows
from train_pytorch_model.formats.writing import table_of, write_csv

FALSE_POSITIVE = "false positive"
MISSED = "missed"
CO_OCCURRENCE = "co_occurrence.csv"


@dataclass(frozen=True)
class LabelRow:
    """A row of per_class.csv; None where a number is undefined."""

    category: str
    average_precision: float | None
    threshold: float
    precision: float | None
    recall: float | None
    f1: float | None
    support: int  # images that have the category
    predicted: int  # images for which it is answered


@dataclass(frozen=True)
class LabelMistake:
    """A row of mistakes.csv: a category that is answered wrongly, or missed."""

    file_name: str
    category: str
    kind: str
    probability: float
    threshold: float
    categories: str  # all of the image, as text
    original: str = ""  # the file's name before it was copied; empty if unknown


@dataclass(frozen=True)
class CurvePoint:
    """A point of a category's curve."""

    category: str
    recall: float
    precision: float


def label_rows(evaluation: MultiLabelEvaluation, categories: Sequence[str]) -> list[LabelRow]:
    """Return the rows of per_class.csv, by class index."""
    per_class = evaluation.per_class
    rows = []
    for index, category in enumerate(categories):
        support = int(per_class.support[index])
        predicted = int(per_class.predicted[index])
        rows.append(
            LabelRow(
                category=category,
                average_precision=float(evaluation.average_precision[index]) if support else None,
                threshold=float(evaluation.thresholds[index]),
                precision=float(per_class.precision[index]) if predicted else None,
                recall=float(per_class.recall[index]) if support else None,
                f1=float(per_class.f1[index]) if support or predicted else None,
                support=support,
                predicted=predicted,
            )
        )
    return rows


def label_mistakes(
    evaluation: MultiLabelEvaluation, evaluated: EvaluatedImages, cells: np.ndarray
) -> list[LabelMistake]:
    """Return the mistakes in these cells (K, 2): rows of the outcomes, and categories."""
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, MultiLabelOutcomes)
    images = evaluated.images
    indices = evaluated.indices
    rows = cells[:, 0]
    originals = images.original_names(indices[rows])
    mistakes = []
    for (row, category), original in zip(cells.tolist(), originals, strict=True):
        index = int(indices[row])
        mistakes.append(
            LabelMistake(
                file_name=images.file_names[index],
                category=images.categories[category],
                kind=MISSED if outcomes.targets[row, category] else FALSE_POSITIVE,
                probability=float(outcomes.probabilities[row, category]),
                threshold=float(evaluation.thresholds[category]),
                categories=images.category_of(index),
                original=original,
            )
        )
    return mistakes


def multi_label_metrics(
    evaluation: MultiLabelEvaluation, categories: Sequence[str]
) -> dict[str, object]:
    """Return the entries of metrics.json that only these evaluations have."""
    rows = label_rows(evaluation, categories)
    micro = {f"micro_{name}": value for name, value in asdict(evaluation.micro).items()}
    macro = {f"macro_{name}": value for name, value in asdict(evaluation.macro).items()}
    mean = evaluation.mean_average_precision
    return {
        "multi_label": True,
        "labels": evaluation.labels,
        "images_without_labels": evaluation.unlabelled,
        "accuracy": evaluation.accuracy,
        "accuracy_interval": evaluation.accuracy_interval,
        "mean_average_precision": mean if evaluation.labels else None,
        "baseline_mean_average_precision": evaluation.baseline,
        **micro,
        **macro,
        "top1_accuracy": evaluation.top1,
        "top5_accuracy": evaluation.top5,
        "loss": evaluation.loss,
        "expected_calibration_error": evaluation.calibration.error,
        "absent_categories": [row.category for row in rows if row.support == 0],
        "per_class": [asdict(row) for row in rows],
        "calibration": [asdict(row) for row in evaluation.calibration.bins],
    }


def write_multi_label_tables(
    root: Path,
    evaluation: MultiLabelEvaluation,
    categories: Sequence[str],
    mistakes: Iterable[LabelMistake],
) -> None:
    """Write all tables; `categories` are the names by class index."""
    tables = {
        "per_class.csv": table_of(LabelRow, label_rows(evaluation, categories)),
        "calibration.csv": table_of(CalibrationBin, evaluation.calibration.bins),
        "curves.csv": table_of(CurvePoint, _curve_points(evaluation, categories)),
        "mistakes.csv": shown_rows(table_of(LabelMistake, mistakes)),
        CO_OCCURRENCE: co_occurrence(evaluation, categories),
    }
    for name, rows in tables.items():
        write_csv(root / name, rows)


def co_occurrence(
    evaluation: MultiLabelEvaluation, categories: Sequence[str]
) -> Iterator[Iterable[object]]:
    """Yield the rows of co_occurrence.csv."""
    yield ["category", *categories]
    for name, row in zip(categories, evaluation.together, strict=True):
        yield [name, *row.tolist()]


def _curve_points(
    evaluation: MultiLabelEvaluation, categories: Sequence[str]
) -> Iterator[CurvePoint]:
    for category, curve in zip(categories, evaluation.curves, strict=True):
        for recall, precision in zip(curve.recall, curve.precision, strict=True):
            yield CurvePoint(category, recall, precision)
