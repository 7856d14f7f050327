"""CSV with Unix line endings and arbitrary text in its cells."""

import csv
import io
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any, TextIO


class _UnixLines:
    """A file wrapper that ends lines in LF instead of CR LF."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")


def write_rows(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write rows to a file opened with `newline=""`.

    Readers take a lone carriage return for the end of a row. Python 3.11 quotes it only if the line
    terminator contains one, so rows are formatted with CR LF, which becomes LF on writing.
    """
    csv.writer(_UnixLines(file), lineterminator="\r\n").writerows(rows)


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """Write rows to a file; undecodable bytes in names are kept. Raises `OSError`."""
    with path.open("w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        write_rows(file, rows)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return the content of such a file; undecodable bytes in names are escaped."""
    text = io.StringIO()
    write_rows(text, rows)
    return text.getvalue().encode("utf-8", "backslashreplace").decode("utf-8")


def table_of(row_type: type, rows: Iterable[Any]) -> Iterator[Iterable[object]]:
    """Yield the names of a dataclass's fields, and the values of each row."""
    yield [field.name for field in fields(row_type)]
    yield from map(astuple, rows)
