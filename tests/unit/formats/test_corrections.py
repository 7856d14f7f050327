"""corrections.csv: as it is written, and as people write it by hand and in spreadsheets."""

import csv
import io
import re
from pathlib import Path

import pytest

from train_pytorch_model.formats.corrections import (
    Correction,
    corrections_csv,
    decision_for,
    read_corrections,
)
from train_pytorch_model.formats.reading import MalformedFileError

SHA256 = "0" * 63 + "a"
HOSTILE = [
    Correction("daisy/1.jpg", SHA256, "daisy", "tulip", "me", "2026-01-02"),
    Correction('a,"b";\n<script>.jpg', "", "", "not sure"),
    Correction("=1+1.png", "", "=daisy", "discarded"),
    Correction("caf\udce9.png", "", "", "tulip"),  # bytes that are no text
    Correction("日本/é.png", "", "日本", "category:discarded"),
]


def read(tmp_path: Path, content: str | bytes) -> list[Correction]:
    path = tmp_path / "corrections.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_corrections(path)


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    assert read(tmp_path, corrections_csv(HOSTILE)) == HOSTILE


@pytest.mark.parametrize(
    "content",
    [
        "file,decision\ndaisy/1.jpg,tulip\n",
        "\ufefffile;decision\r\ndaisy/1.jpg;tulip\r\n",
        "File\tDecision\nDaisy\t\n daisy/1.jpg \t tulip \n\t\n",
        "Decision,who,Filename\ntulip,,daisy\\1.jpg\n",
        "daisy/1.jpg,tulip\n",
        "file,decision\ndaisy/1.jpg,discarded\ndaisy/1.jpg,tulip\n",
    ],
    ids=["two columns", "spreadsheet", "tabs", "other order", "no header", "decided again"],
)
def test_tables_of_people_are_read(content: str, tmp_path: Path) -> None:
    assert read(tmp_path, content) == [Correction("daisy/1.jpg", "", "", "tulip")]


def test_a_decision_is_no_category_but_may_be_called_like_one(tmp_path: Path) -> None:
    rows = read(
        tmp_path, "file,decision\na.png,Discarded\nb.png,Not_sure\nc.png,category:discarded\n"
    )
    assert [row.decision for row in rows] == ["discarded", "not sure", "category:discarded"]
    assert [row.category for row in rows] == [None, None, "discarded"]


@pytest.mark.parametrize(
    "category", ["not sure", "not_sure", "NOT  SURE", "Discarded", "category:a"]
)
def test_a_category_survives_that_is_spelled_like_a_decision(category: str, tmp_path: Path) -> None:
    written = corrections_csv([Correction("a.png", "", "", decision_for(category))])
    (row,) = read(tmp_path, written)
    assert row.category == category
    assert corrections_csv([row]) == written


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("picture_id,decision\n1,tulip\n", "no column 'file'; it has 'picture_id', 'decision'"),
        ("file,before\na.png,tulip\n", "no column 'decision'"),
        ("file,decision,sha256\na.png,tulip,12ab\n", ":2: sha256 is '12ab'; 64 hexadecimal"),
        (f"file,decision\na.png,{'x' * 256}\n", ":2: the decision is a category of 256 bytes"),
        ("file,decision\nä.png,tulip\n".encode("latin-1"), "Save the table as CSV UTF-8"),
        ("", "has no rows"),
    ],
)
def test_other_tables_are_refused_with_what_to_do(
    content: str | bytes, message: str, tmp_path: Path
) -> None:
    with pytest.raises(MalformedFileError) as caught:
        read(tmp_path, content)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["=cmd|' /C calc'!A0.png", "@SUM(1).png", "-2+3+cmd|'x'!A.png", "'=a(1).png", "+ve", "-1"],
)
def test_a_spreadsheet_computes_no_name(name: str, tmp_path: Path) -> None:
    row = Correction(f"{name}", "", name, decision_for(name), name, "")
    text = corrections_csv([row])
    assert read(tmp_path, text) == [row]
    cells = next(csv.DictReader(io.StringIO(text)))
    assert not re.match(r"[=@+-].*[(|]", cells["file"])
    assert (cells["file"] == name) == (name in ("+ve", "-1"))  # which are ordinary categories
    assert read(tmp_path, f"file,decision\n{name},tulip\n")[0].decision == "tulip"
