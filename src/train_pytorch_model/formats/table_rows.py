"""The rows of a table, as columns: CSV as people have it, or JSON lines.

CSV is separated by , ; | or tabs. Two columns whose first row names an image may have no header:
they are called `column 1` and `column 2`.
"""

import csv
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import msgspec

from train_pytorch_model.formats import listing
from train_pytorch_model.formats.reading import NOT_JSON, MalformedFileError, read_lines
from train_pytorch_model.formats.tagged_images import tagged_images

TABLE_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIX = ".jsonl"
TAGGED_SUFFIX = ".json"
DELIMITERS = ",;\t|"
WITHOUT_HEADER = ("column 1", "column 2")
MAX_TABLE_BYTES = 1 << 30
MAX_COLUMNS = 2_000
MAX_CELLS = 50_000_000
ROWS_AT_ONCE = 10_000


class SeveralValues(str):
    """The cell of a JSON table that holds an object, or a list that is not one of texts, as text.

    A list of texts is a tuple.
    """


class Table:
    """The cells of a table, by column."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.columns: dict[str, list[Any]] = {}
        self.lines = array("q")  # the number of each row's last line, from 1

    def __len__(self) -> int:
        return len(self.lines)

    def extend(self, lines: Sequence[int], cells: Mapping[str, Iterable[Any]]) -> None:
        """Append rows, given as columns; what a column lacks is None.

        Raises `MalformedFileError`.
        """
        for column in cells:
            if column not in self.columns:
                self.columns[column] = [None] * len(self.lines)
        self.lines.extend(lines)
        num_rows = len(self.lines)
        if num_rows * len(self.columns) > MAX_CELLS or len(self.columns) > MAX_COLUMNS:
            raise MalformedFileError(
                f"{self.name} has more than {MAX_COLUMNS:,} columns or {MAX_CELLS:,} cells. Leave"
                " out columns that are not needed."
            )
        for column, values in self.columns.items():
            values.extend(cells.get(column, ()))
            values.extend([None] * (num_rows - len(values)))


def read_rows(path: Path, names_image: Callable[[str], bool], max_rows: int | None = None) -> Table:
    """Read a table, or its first rows. Raises `MalformedFileError`."""
    table = Table(path)
    try:
        size = path.stat().st_size
    except OSError as error:
        raise MalformedFileError(f"{path.name} cannot be read: {error.strerror}.") from error
    if size > MAX_TABLE_BYTES:
        raise MalformedFileError(f"{path.name} is larger than {MAX_TABLE_BYTES:,} bytes.")
    suffix = listing.suffix_of(path.name)
    if suffix == JSON_SUFFIX:
        for line, row in islice(_json_rows(path), max_rows):
            table.extend([line], row)
    elif suffix == TAGGED_SUFFIX:
        for number, row in enumerate(tagged_images(path, names_image), 1):
            table.extend([number], row)
    else:
        for lines, cells in _csv_rows(path, names_image, max_rows):
            table.extend(lines, cells)
    if not len(table):
        raise MalformedFileError(f"{path.name} has no rows. Add some, or remove it.")
    return table


def _csv_rows(
    path: Path, names_image: Callable[[str], bool], max_rows: int | None
) -> Iterator[tuple[Sequence[int], Mapping[str, Iterable[Any]]]]:
    """Yield the numbers and the cells of many rows at a time, by column."""
    lines = (_decode(path, number, line) for number, line in read_lines(path))
    first = next(lines, "")
    delimiter = max(DELIMITERS, key=first.count)
    table = csv.reader(chain([first], lines), delimiter=delimiter, skipinitialspace=True)
    numbered = ((table.line_num, row) for row in table)
    try:
        columns: Sequence[str] = [cell.strip() for cell in next(table, [])]
        if len(columns) == 2 and any(map(names_image, columns)):
            yield [1], {name: [cell] for name, cell in zip(WITHOUT_HEADER, columns, strict=True)}
            columns = WITHOUT_HEADER
        wanted = islice(numbered, max_rows)
        while rows := list(islice(wanted, ROWS_AT_ONCE)):
            by_column = zip_longest(*(row[: len(columns)] for _, row in rows))
            cells: dict[str, Iterable[Any]] = {}
            for name, values in zip(columns, by_column, strict=False):
                cells.setdefault(name, map(_clean, values))  # the first of two with the same name
            yield [number for number, _ in rows], cells
    except csv.Error as error:
        raise MalformedFileError(f"{path.name}:{table.line_num}: {error}.") from error


def _clean(cell: str | None) -> str | None:
    """Return a cell without blanks around it; None for an empty one."""
    # Most cells of a column repeat: the same text is held once.
    return sys.intern(cell.strip()) or None if cell else None


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode() + "\n"
    except UnicodeDecodeError as error:
        raise MalformedFileError(
            f"{path.name}:{number} is not UTF-8. Save the table as CSV UTF-8, as spreadsheets call"
            " it."
        ) from error


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Iterable[Any]]]]:
    for number, line in read_lines(path):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except NOT_JSON as error:
            raise MalformedFileError(
                f"{path.name}:{number} is not a JSON object: {error}."
            ) from error
        yield number, {column: [_cell(value)] for column, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if isinstance(value, list | dict):
        return SeveralValues(msgspec.json.encode(value).decode(errors="replace"))
    return value
