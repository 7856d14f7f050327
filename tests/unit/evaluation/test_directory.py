"""The machine-readable files of an evaluation."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from train_pytorch_model.evaluation.directory import MAX_PAIRS, write_numbers
from train_pytorch_model.evaluation.metrics import Evaluation, evaluate, outcomes_of
from train_pytorch_model.evaluation.tables import Prediction

# The first category is plain; the others break lines, cells or formats; the last has no image.
CATEGORIES = ("cat", 'a "quoted", name', "two\nlines", "=1+1", "חתול")
MISTAKE = Prediction("cat/1,5.png", "cat", "two\nlines", 0.7, 0.1)


def evaluation_of(targets: list[int], predicted: list[int], num_classes: int) -> Evaluation:
    """The evaluation of a model with full confidence in every prediction."""
    return evaluate(outcomes_of(np.array(targets), np.eye(num_classes)[predicted]), num_classes)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The files for four of six images right; the fourth category is never predicted."""
    evaluation = evaluation_of([0, 0, 0, 1, 2, 3], [0, 0, 2, 1, 2, 1], len(CATEGORIES))
    write_numbers(tmp_path, evaluation, CATEGORIES, [MISTAKE], num_unreadable=2)
    return tmp_path


def rows(path: Path) -> list[list[str]]:
    """The cells of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def test_the_directory_holds_these_files(written: Path) -> None:
    assert {path.name for path in written.iterdir()} == {
        *(
            "metrics.json",
            "per_class.csv",
            "confusion_matrix.csv",
            "calibration.csv",
            "coverage.csv",
            "mistakes.csv",
        )
    }


def test_metrics_are_one_json_object(written: Path) -> None:
    text = (written / "metrics.json").read_text(encoding="ascii")
    metrics = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    names = ("per_class", "calibration", "coverage", "most_confused", "absent_categories")
    per_class, calibration, coverage, confused, absent = (metrics.pop(name) for name in names)
    assert absent == ["חתול"]
    interval = binomtest(4, 6).proportion_ci(method="wilson")
    assert metrics.pop("accuracy_interval") == pytest.approx(
        [interval.low, interval.high], abs=1e-4
    )
    assert metrics == pytest.approx(
        {
            "images": 6,
            "left_out": 2,
            "images_like_training_images": None,
            "accuracy_without_them": None,
            "baseline_accuracy": 0.5,
            "accuracy": 4 / 6,
            "top5_accuracy": 1,
            "balanced_accuracy": (2 / 3 + 1 + 1 + 0) / 4,
            "loss": 2 / 6 * -np.log(np.finfo(np.float64).tiny),
            "macro_precision": (1 + 1 / 2 + 1 / 2 + 0) / 4,
            "macro_recall": (2 / 3 + 1 + 1 + 0) / 4,
            "macro_f1": (4 / 5 + 2 / 3 + 2 / 3 + 0) / 4,
            "weighted_precision": (3 * 1 + 1 / 2 + 1 / 2 + 0) / 6,
            "weighted_recall": 4 / 6,
            "weighted_f1": (3 * 4 / 5 + 2 / 3 + 2 / 3 + 0) / 6,
            "mean_confidence": 1,
            "expected_calibration_error": 2 / 6,
        }
    )
    assert [row["category"] for row in per_class] == list(CATEGORIES)
    assert per_class[3] == {
        **{"category": "=1+1", "precision": None, "recall": 0.0, "f1": 0.0},
        **{"support": 1, "predicted": 0},
    }
    assert per_class[4] == {
        **{"category": "חתול", "precision": None, "recall": None, "f1": None},
        **{"support": 0, "predicted": 0},
    }
    assert calibration[0] == {
        **{"lower": 0.0, "upper": pytest.approx(1 / 15), "images": 0},
        **{"confidence": None, "accuracy": None},
    }
    assert calibration[-1] == {
        **{"lower": pytest.approx(14 / 15), "upper": 1.0, "images": 6},
        **{"confidence": 1.0, "accuracy": pytest.approx(4 / 6)},
    }
    assert coverage[0] == {
        "threshold": 0.5,
        "images": 6,
        "share": 1.0,
        "accuracy": pytest.approx(4 / 6),
    }
    assert confused == [
        {"category": "cat", "predicted": "two\nlines", "images": 1, "share": pytest.approx(1 / 3)},
        {"category": "=1+1", "predicted": 'a "quoted", name', "images": 1, "share": 1.0},
    ]


def test_the_tables_equal_those_of_the_json(written: Path) -> None:
    metrics = json.loads((written / "metrics.json").read_text())
    for name in ("per_class", "calibration", "coverage"):
        table = pd.read_csv(written / f"{name}.csv")
        pd.testing.assert_frame_equal(table, pd.DataFrame(metrics[name]), rtol=1e-15)


def test_an_undefined_metric_is_an_empty_cell(written: Path) -> None:
    assert rows(written / "per_class.csv")[0] == [
        *("category", "precision", "recall", "f1", "support", "predicted")
    ]
    assert rows(written / "per_class.csv")[5] == ["חתול", "", "", "", "0", "0"]


def test_the_matrix_has_a_row_per_true_and_a_column_per_predicted_category(written: Path) -> None:
    assert rows(written / "confusion_matrix.csv") == [
        ["category", *CATEGORIES],
        ["cat", "2", "0", "1", "0", "0"],
        ['a "quoted", name', "0", "1", "0", "0", "0"],
        ["two\nlines", "0", "0", "1", "0", "0"],
        ["=1+1", "0", "1", "0", "0", "0"],
        ["חתול", "0", "0", "0", "0", "0"],
    ]


def test_mistakes_are_listed_in_the_order_given(tmp_path: Path) -> None:
    strange = Prediction(
        "cat/\udcff\r.png", "cat", "dog", 0.6, 0.4, "a cat.png"
    )  # the file name is not UTF-8
    evaluation = evaluation_of([0, 0], [1, 1], 2)
    write_numbers(tmp_path, evaluation, ("cat", "dog"), iter([MISTAKE, strange]), num_unreadable=0)
    with (tmp_path / "mistakes.csv").open(
        newline="", encoding="utf-8", errors="surrogateescape"
    ) as file:
        assert list(csv.reader(file)) == [
            [
                "file_name",
                "category",
                "predicted",
                "confidence",
                "category_probability",
                "original",
            ],
            ["cat/1,5.png", "cat", "two\nlines", "0.7", "0.1", ""],
            ["cat/\udcff\r.png", "cat", "dog", "0.6", "0.4", "a cat.png"],
        ]


def test_only_the_largest_confusions_are_in_the_json(tmp_path: Path) -> None:
    count = MAX_PAIRS + 20
    evaluation = evaluation_of(
        [*range(count), 5], [*((i + 1) % count for i in range(count)), 6], count
    )
    write_numbers(
        tmp_path, evaluation, [f"c{index}" for index in range(count)], [], num_unreadable=0
    )
    confused = json.loads((tmp_path / "metrics.json").read_text())["most_confused"]
    assert len(confused) == MAX_PAIRS
    assert confused[0] == {"category": "c5", "predicted": "c6", "images": 2, "share": 1.0}
