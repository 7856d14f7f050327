"""Images whose category is probably wrong."""

import csv
import io
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import open_three

from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.quality.suspects import (
    Suspect,
    Suspects,
    about_suspects,
    can_tell,
    suspect_rows,
    suspects_by_margin,
    suspects_by_prediction,
    suspects_csv,
    suspects_in,
)


def test_images_that_are_more_probably_wrong_than_right_are_listed() -> None:
    targets = np.array([0, 1, 2, 0])
    logits = np.array([[0.0, 3, 1], [0, 3, 1], [2, 1, 0], [0, 1, 5]])
    suspects = suspects_by_prediction(targets, logits, np.array([0.6, 0.1, 0.49, 0.9]))
    assert suspects.indices.tolist() == [3, 0]
    assert suspects.proposed.tolist() == [2, 1]
    assert suspects.wrong.tolist() == [0.9, 0.6]
    assert suspects.num_images == 4


def test_training_images_are_suspected_as_often_as_those_held_out() -> None:
    held_out = Suspects(np.arange(3), np.zeros(3, np.int64), np.array([0.9, 0.8, 0.6]), 30)
    margins = np.full(40, 0.9)
    margins[[3, 7, 11, 20, 21]] = [0.3, 0.1, np.nan, 0.45, 0.48]
    suspects = suspects_by_margin(margins, np.arange(40), held_out)
    assert suspects.indices.tolist() == suspects.proposed.tolist() == [7, 3, 20, 21]
    assert suspects.wrong[0] == 0.9
    assert (np.diff(suspects.wrong) <= 0).all()
    assert suspects.wrong[-1] == 0.6


def test_training_images_that_the_network_agrees_with_are_not_suspected() -> None:
    held_out = Suspects(np.arange(9), np.zeros(9, np.int64), np.full(9, 0.9), 10)
    suspects = suspects_by_margin(np.full(20, 0.6), np.zeros(20, np.int64), held_out)
    assert len(suspects.indices) == len(suspects.wrong) == 0


def test_no_training_image_is_suspected_if_none_is_that_was_held_out() -> None:
    nothing = Suspects(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), 10)
    suspects = suspects_by_margin(np.full(20, 0.01), np.zeros(20, np.int64), nothing)
    assert len(suspects.indices) == 0


def test_a_weak_network_cannot_tell_wrong_labels_and_a_good_one_can() -> None:
    sure = np.full((50, 4), 0.001)
    sure[np.arange(50), np.arange(50) % 4] = 0.997
    assert can_tell(sure, 0.1) == pytest.approx(1, abs=0.01)
    assert can_tell(np.full((50, 4), 0.25), 0.1) == 0


def test_suspects_are_read_as_they_were_and_computed_by_no_spreadsheet(tmp_path: Path) -> None:
    names = ("=cmd|' /C calc'!A0.png", "@SUM(1)", '"a",\nb', "+ve", "日本")
    rows = [Suspect(name, name, f"rather {name}", 0.75, "Training dataset", name) for name in names]
    (tmp_path / "suspects.csv").write_text(suspects_csv(rows), encoding="utf-8")
    assert suspects_in(tmp_path) == rows
    cells = csv.reader(io.StringIO(suspects_csv(rows)))
    assert [row[0][0] for row in cells][1:] == ["'", "'", '"', "+", "日"]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ([], ""),
        ([0.7], "1 image probably has a wrong category: see suspects.csv."),
        ([0.9, 0.6, 0.7], "3 images probably have a wrong category, and about 2 of them really do"),
    ],
)
def test_the_expected_number_of_wrong_categories_is_told(wrong: list[float], text: str) -> None:
    assert text in about_suspects([Suspect("a", "b", "c", one, "d", "") for one in wrong])


def test_rows_of_both_data_sets_are_ranked_by_their_probability(tmp_path: Path) -> None:
    images = open_three(tmp_path)
    few = Suspects(np.array([0, 1]), np.array([1, 0]), np.array([0.9, 0.5]), 10)
    many = Suspects(np.array([2]), np.array([1]), np.array([0.9]), 1000)
    rows = suspect_rows([(images, few), (images, many)])
    assert [row.file for row in rows] == [images.file_names[index] for index in (2, 0, 1)]
    table = list(csv.DictReader(io.StringIO(csv_text(table_of(Suspect, rows)))))
    assert list(table[0]) == ["file", "given", "proposed", "wrong", "dataset", "original"]
    assert tuple(table[1].values()) == tuple(map(str, astuple(rows[1])))
    assert (rows[1].given, rows[1].proposed) == ("große", "b")
