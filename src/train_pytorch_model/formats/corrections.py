"""Decisions about images: which have another category, and which are not to be used.

corrections.csv   file,sha256,before,decision,who,when
                  daisy/1.jpg,9f86…,daisy,tulip,,
                  daisy/2.jpg,60d4…,daisy,discarded,,
                  daisy/3.jpg,a0c1…,daisy,not sure,,

The file is relative to the data set, and `before` is its category then, empty without one. Only the
file and the decision are needed, so that the table can be written by hand. A category that is
called like a decision is written `category:discarded`.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_pytorch_model.formats import listing
from train_pytorch_model.formats.labelled_rows import MAX_LABEL_BYTES
from train_pytorch_model.formats.listing import comparable
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.spreadsheet_cells import as_meant, shown_rows
from train_pytorch_model.formats.table_rows import Table, read_rows
from train_pytorch_model.formats.writing import csv_text, table_of

CORRECTIONS = "corrections.csv"
DISCARDED = "discarded"
NOT_SURE = "not sure"
IS_CATEGORY = "category:"  # before a category that would be taken for something else
FILE_COLUMNS = ("file", "file_name", "filename", "path", "image", "column 1")
DECISION_COLUMNS = ("decision", "category", "label", "class", "column 2")
SHA256_LENGTH = 64
SHOWN_COLUMNS = 8
ESCAPED_BYTE = re.compile(r"\\u(dc[89a-f][0-9a-f])")


@dataclass(frozen=True)
class Correction:
    """A row of corrections.csv."""

    file: str  # relative to the data set
    sha256: str  # of the file that was decided on; empty if unknown
    before: str  # its category then; empty without one
    decision: str  # a category, `DISCARDED` or `NOT_SURE`
    who: str = ""
    when: str = ""

    @property
    def category(self) -> str | None:
        """Return the category that was decided; None for another decision."""
        if self.decision in (DISCARDED, NOT_SURE):
            return None
        return self.decision.removeprefix(IS_CATEGORY)


def decision_for(category: str) -> str:
    """Return the decision for a category, whatever it is called."""
    is_taken = _folded(category) in (DISCARDED, NOT_SURE) or category.startswith(IS_CATEGORY)
    return IS_CATEGORY + category if is_taken else category


def read_corrections(path: Path) -> list[Correction]:
    """Return the decisions of a table, the last one for each file.

    Raises `MalformedFileError`.
    """
    table = read_rows(path, _is_image_name)
    files = _column(table, FILE_COLUMNS)
    decisions = _column(table, DECISION_COLUMNS)
    if files is None or decisions is None:
        missing = "file" if files is None else "decision"
        has = ", ".join(map(repr, list(table.columns)[:SHOWN_COLUMNS]))
        raise MalformedFileError(
            f"{table.name} has no column {missing!r}; it has {has}. Each row needs a file, relative"
            f" to the data set, and a decision: a category, `{DISCARDED}` or `{NOT_SURE}`."
        )
    corrections: dict[str, Correction] = {}
    for correction in _rows(table, files, decisions):
        corrections.pop(correction.file, None)  # the last one counts, in its place
        corrections[correction.file] = correction
    return list(corrections.values())


def corrections_csv(corrections: Iterable[Correction]) -> str:
    """Return the content of a corrections.csv."""
    return csv_text(shown_rows(table_of(Correction, corrections)))


def _rows(table: Table, files: list[Any], decisions: list[Any]) -> Iterator[Correction]:
    """Yield the rows that have a file and a decision. Raises `MalformedFileError`."""
    blank = [None] * len(table)
    optional = [_column(table, (name,)) or blank for name in ("sha256", "before", "who", "when")]
    cells = zip(table.lines, files, decisions, *optional, strict=True)
    for line, file, decision, sha256, before, who, when in cells:
        if file is None or decision is None:
            continue  # an image that nobody has decided on
        where = f"{table.name}:{line}"
        yield Correction(
            file=_file_name(as_meant(str(file))),
            sha256=_sha256(sha256, where),
            before=as_meant(str(before or "")),
            decision=_decision(as_meant(str(decision)), where),
            who=as_meant(str(who or "")),
            when=as_meant(str(when or "")),
        )


def _column(table: Table, names: Iterable[str]) -> list[Any] | None:
    by_name = {comparable(name).strip().casefold(): name for name in reversed(table.columns)}
    return next((table.columns[by_name[name]] for name in names if name in by_name), None)


def _is_image_name(cell: str) -> bool:
    """Return whether a cell of the first line names an image, so that there is no header."""
    return listing.suffix_of(cell) in listing.SUFFIXES


def _file_name(cell: str) -> str:
    """Return a name with the separators of the data set, as of a table made on Windows.

    Bytes that are no text, which `csv_text` escapes, are what they were.
    """
    name = ESCAPED_BYTE.sub(lambda found: chr(int(found[1], 16)), cell.removeprefix("./"))
    return name if "/" in name else name.replace("\\", "/")


def _sha256(cell: Any, where: str) -> str:
    digest = str(cell or "").lower()
    if digest and (len(digest) != SHA256_LENGTH or set(digest) - set("0123456789abcdef")):
        raise MalformedFileError(
            f"{where}: sha256 is {digest[:SHA256_LENGTH]!r}; 64 hexadecimal digits are expected, or"
            " an empty cell."
        )
    return digest


def _decision(cell: str, where: str) -> str:
    """Return a decision as this program writes it. Raises `MalformedFileError`."""
    folded = _folded(cell)
    if folded in (DISCARDED, NOT_SURE):
        return folded
    category = cell.removeprefix(IS_CATEGORY)
    size = len(category.encode(errors="replace"))
    if not 0 < size <= MAX_LABEL_BYTES or not listing.is_utf8(category):
        raise MalformedFileError(
            f"{where}: the decision is a category of {size:,} bytes; 1 to {MAX_LABEL_BYTES} are"
            f" expected, `{DISCARDED}` or `{NOT_SURE}`."
        )
    return decision_for(category)


def _folded(text: str) -> str:
    """Return what spellings of the same decision share; `review.js` does the same."""
    return " ".join(text.casefold().replace("_", " ").split())
