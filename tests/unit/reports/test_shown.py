"""Tables of a model directory, as spreadsheets show them and Python programs read them."""

from pathlib import Path

import numpy as np

from train_pytorch_model.evaluation.directory import MISTAKES, write_numbers
from train_pytorch_model.evaluation.metrics import evaluate, outcomes_of
from train_pytorch_model.evaluation.tables import Prediction
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.quality.twins import TWINS, TwinRow, twins_table
from train_pytorch_model.reports.shown import read_table

COMPUTED = "=cmd|' /C calc'!A0"


def test_mistakes_are_computed_by_no_spreadsheet_and_read_as_they_were(tmp_path: Path) -> None:
    evaluation = evaluate(outcomes_of(np.array([0]), np.array([[0.3, 0.7]])), 2)
    mistake = Prediction(COMPUTED, "NA", "-1", 0.7, 0.3)
    write_numbers(tmp_path, evaluation, ("NA", "-1"), [mistake], num_unreadable=0)
    assert (tmp_path / MISTAKES).read_text().splitlines()[1] == f"'{COMPUTED},NA,-1,0.7,0.3,"
    (row,) = read_table(tmp_path, MISTAKES, Prediction).itertuples(index=False)
    assert tuple(row) == (COMPUTED, "NA", "-1", 0.7, 0.3, "")


def test_twins_are_computed_by_no_spreadsheet_and_read_as_they_were(tmp_path: Path) -> None:
    twin = TwinRow("training", COMPUTED, "NA", "validation", "a.png", "b", "similar", 3)
    write_csv(tmp_path / TWINS, twins_table([twin]))
    assert f"training,'{COMPUTED},NA,validation," in (tmp_path / TWINS).read_text()
    (row,) = read_table(tmp_path, TWINS, TwinRow).itertuples(index=False)
    assert TwinRow(*row) == twin
