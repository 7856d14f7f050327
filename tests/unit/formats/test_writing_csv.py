"""CSV rows with arbitrary text in their cells."""

import csv
import io
from pathlib import Path

import pandas as pd

from train_pytorch_model.formats.writing import write_rows

STRANGE = ["\r", "a\rb", "a\r\nb", "\n", "b\r\n", 'a "b", c', "", "plain"]


def test_every_cell_survives_a_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    rows = [["name", "number"], *([name, "1"] for name in STRANGE)]
    with path.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, rows)
    with path.open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file)) == rows
    assert pd.read_csv(path, keep_default_na=False)["name"].tolist() == STRANGE


def test_lines_end_with_lf_and_cells_are_quoted_only_if_needed() -> None:
    text = io.StringIO(newline="")
    write_rows(text, [["a", 1, None], ["b\r\n", 0.5, ""]])
    assert text.getvalue() == 'a,1,\n"b\r\n",0.5,\n'
