"""EvaluationDirectory: the metrics of a model on labelled images.

    _meta.yaml             type: EvaluationDirectory, extension: {}
    metrics.json           what `write_numbers` lists; fractions are from 0 to 1, the loss in nats:
        images_like_training_images        null if the model does not know its own
        accuracy_without_them              on the other images; null without any
        baseline_accuracy                  of always guessing the largest category
        per_class, calibration, coverage   the rows of these tables
        race                               how `fit` has chosen the network, if by a race, as
                                           `RaceRecord`
        against                            of `--against`, the other model on the same images, as
                                           `Comparison.entries`
        most_confused                      at most 100 off-diagonal cells of the matrix, the
                                           largest first, as `ConfusedRow`
    per_class.csv          `CategoryRow`, by class index: its images, and those predicted as it
    confusion_matrix.csv   category,<each category>: a row per true category, a column per
                           predicted one
    calibration.csv        `CalibrationBin`: confidences in (lower, upper], means over their images
    coverage.csv           `CoverageRow`: images of at least a confidence, and how many are right
    mistakes.csv           `Prediction`: every wrong one, the most confident first
    evaluation.html        the same as a web page
    bad_images.csv         the images that cannot be read, if any
    twins.csv              `TwinRow`: pairs of these images that look alike, if any; of `fit`, also
                           of a test image and one of training or of validation

Of images with any number of categories the tables are those of `multi_label_tables`.

A number that is undefined, such as the recall of a category without an image, is null in JSON and
empty in CSV. Macro averages are over the categories that have images or were predicted; there an
undefined number counts as 0, as in scikit-learn.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from train_pytorch_model.evaluation.comparison import Comparison
from train_pytorch_model.evaluation.metrics import CalibrationBin, CoverageRow, Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.multi_label_tables import (
    label_mistakes,
    multi_label_metrics,
    write_multi_label_tables,
)
from train_pytorch_model.evaluation.tables import (
    CategoryRow,
    EvaluatedImages,
    Prediction,
    category_rows,
    confused_rows,
    confusion_matrix,
)
from train_pytorch_model.formats.race_record import RaceRecord
from train_pytorch_model.formats.spreadsheet_cells import shown_rows
from train_pytorch_model.formats.writing import table_of, write_csv, write_json
from train_pytorch_model.quality.training_look_alikes import TrainingLookAlikes

META_CONTENT: Mapping[str, Any] = {"type": "EvaluationDirectory", "extension": {}}
CONFUSION_MATRIX = "confusion_matrix.csv"
MISTAKES = "mistakes.csv"
METRICS = "metrics.json"
PAGE = "evaluation.html"
MAX_PAIRS = 100


def write_evaluation(
    root: Path,
    evaluation: AnyEvaluation,
    evaluated: EvaluatedImages,
    num_unreadable: int,
    look_alikes: TrainingLookAlikes | None = None,
    race: RaceRecord | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the metrics and all tables of these images."""
    write = _WRITERS[type(evaluation)]
    write(root, evaluation, evaluated, num_unreadable, look_alikes, race, comparison)


def _write_single_label(
    root: Path,
    evaluation: Evaluation,
    evaluated: EvaluatedImages,
    num_unreadable: int,
    look_alikes: TrainingLookAlikes | None,
    race: RaceRecord | None,
    comparison: Comparison | None,
) -> None:
    categories = evaluated.images.categories
    mistakes = evaluated.predictions(evaluation.mistakes)
    write_numbers(
        root, evaluation, categories, mistakes, num_unreadable, look_alikes, race, comparison
    )


def _write_multi_label(
    root: Path,
    evaluation: MultiLabelEvaluation,
    evaluated: EvaluatedImages,
    num_unreadable: int,
    look_alikes: TrainingLookAlikes | None,
    *_: object,  # there is no race, and nothing to compare with
) -> None:
    categories = evaluated.images.categories
    images = _about_images(evaluation, num_unreadable, look_alikes)
    write_json(root / METRICS, images | multi_label_metrics(evaluation, categories))
    cells = np.concatenate([evaluation.false_positives, evaluation.missed])
    mistakes = label_mistakes(evaluation, evaluated, cells)
    write_multi_label_tables(root, evaluation, categories, mistakes)


_WRITERS: Mapping[type, Callable[..., None]] = {
    Evaluation: _write_single_label,
    MultiLabelEvaluation: _write_multi_label,
}


def _about_images(
    evaluation: AnyEvaluation, num_unreadable: int, look_alikes: TrainingLookAlikes | None
) -> dict[str, object]:
    """Return the entries of metrics.json that say which images they are about."""
    return {
        "images": evaluation.images,
        "left_out": num_unreadable,
        "images_like_training_images": look_alikes.images if look_alikes else None,
        "accuracy_without_them": look_alikes.accuracy_without if look_alikes else None,
    }


def write_numbers(
    root: Path,
    evaluation: Evaluation,
    categories: Sequence[str],
    mistakes: Iterable[Prediction],
    num_unreadable: int,
    look_alikes: TrainingLookAlikes | None = None,
    race: RaceRecord | None = None,
    comparison: Comparison | None = None,
) -> None:
    """Write the metrics and all tables; `categories` are the names by class index."""
    write_json(
        root / METRICS,
        {
            **_about_images(evaluation, num_unreadable, look_alikes),
            **_metrics(evaluation),
            **_rows(evaluation, categories),
            **({"race": msgspec.to_builtins(race)} if race else {}),
            **({"against": comparison.entries()} if comparison else {}),
        },
    )
    tables = {
        "per_class.csv": table_of(CategoryRow, category_rows(evaluation.per_class, categories)),
        "calibration.csv": table_of(CalibrationBin, evaluation.calibration.bins),
        "coverage.csv": table_of(CoverageRow, evaluation.coverage.rows),
        MISTAKES: shown_rows(table_of(Prediction, mistakes)),
        CONFUSION_MATRIX: confusion_matrix(evaluation, categories),
    }
    for name, rows in tables.items():
        write_csv(root / name, rows)


def _metrics(evaluation: Evaluation) -> dict[str, object]:
    """Return the entries of metrics.json that are numbers."""
    macro = {f"macro_{name}": value for name, value in asdict(evaluation.macro).items()}
    weighted = {f"weighted_{name}": value for name, value in asdict(evaluation.weighted).items()}
    return {
        "accuracy": evaluation.accuracy,
        "accuracy_interval": evaluation.accuracy_interval,
        "baseline_accuracy": evaluation.baseline,
        "top5_accuracy": evaluation.top5,
        "balanced_accuracy": evaluation.balanced_accuracy,
        "loss": evaluation.loss,
        **macro,
        **weighted,
        "mean_confidence": evaluation.mean_confidence,
        "expected_calibration_error": evaluation.calibration.error,
    }


def _rows(evaluation: Evaluation, categories: Sequence[str]) -> dict[str, object]:
    """Return the entries of metrics.json that are rows of tables."""
    per_class = category_rows(evaluation.per_class, categories)
    confused = confused_rows(evaluation, categories, MAX_PAIRS)
    return {
        "absent_categories": [row.category for row in per_class if row.support == 0],
        "per_class": [asdict(row) for row in per_class],
        "calibration": [asdict(row) for row in evaluation.calibration.bins],
        "coverage": [asdict(row) for row in evaluation.coverage.rows],
        "most_confused": [asdict(row) for row in confused],
    }
