"""Images whose category is probably wrong."""

import csv
import io
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from tests.image_directories import open_three

from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.quality.suspects import (
    Suspect,
    Suspects,
    suspect_rows,
    suspects_by_margin,
    suspects_by_prediction,
)


def noisy_predictions(seed: int, accuracy: float) -> tuple[np.ndarray, np.ndarray]:
    """Given categories (400,), a tenth of them wrong, and predictions (400, 4)."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 4, 400)
    given = np.where(random.random(400) < 0.1, (true + random.integers(1, 4, 400)) % 4, true)
    seen = np.where(random.random(400) < accuracy, true, random.integers(0, 4, 400))
    powers = np.exp(3 * np.eye(4)[seen] + random.standard_normal((400, 4)))
    return given, powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize(("seed", "accuracy"), [(1, 0.95), (2, 0.7), (3, 0.4)])
def test_predictions_lead_to_the_suspects_of_cleanlab(seed: int, accuracy: float) -> None:
    given, probabilities = noisy_predictions(seed, accuracy)
    suspects = suspects_by_prediction(given, probabilities)
    expected = find_label_issues(
        given,
        probabilities,
        filter_by="confident_learning",
        return_indices_ranked_by="self_confidence",
    )
    np.testing.assert_array_equal(suspects.indices, expected)
    assert (suspects.proposed != given[suspects.indices]).all()
    np.testing.assert_allclose(
        suspects.scores, probabilities[suspects.indices, given[suspects.indices]]
    )


def test_confident_predictions_of_the_given_categories_leave_no_suspect() -> None:
    given = np.arange(30) % 3
    probabilities = np.full((30, 4), 0.05)  # there is no image of the last category
    probabilities[np.arange(30), given] = 0.85
    assert len(suspects_by_prediction(given, probabilities).indices) == 0


def test_the_lowest_margins_are_suspect() -> None:
    margins = np.full(40, 0.9)
    margins[[3, 7, 11, 20]] = [0.3, 0.1, np.nan, 0.45]
    suspects = suspects_by_margin(margins, np.arange(40))
    assert suspects.indices.tolist() == suspects.proposed.tolist() == [7, 3]
    assert suspects.scores.tolist() == [0.1, 0.3]


def test_a_network_that_has_learned_nothing_does_not_accuse_everyone() -> None:
    assert len(suspects_by_margin(np.full(200, 0.2), np.zeros(200, np.int64)).indices) == 20


def test_rows_of_both_data_sets_alternate_by_their_share(tmp_path: Path) -> None:
    images = open_three(tmp_path)
    few = Suspects(np.array([0, 1]), np.array([1, 0]), np.array([0.1, 0.2]), 10)
    many = Suspects(np.array([2]), np.array([1]), np.array([0.05]), 1000)
    rows = suspect_rows([(images, few), (images, many)])
    assert [row.file for row in rows] == [images.file_names[index] for index in (2, 0, 1)]
    table = list(csv.DictReader(io.StringIO(csv_text(table_of(Suspect, rows)))))
    assert list(table[0]) == ["file", "given", "proposed", "score", "dataset", "original"]
    assert tuple(table[1].values()) == tuple(map(str, astuple(rows[1])))
    assert (rows[1].given, rows[1].proposed) == ("große", "b")
