"""CSV with Unix line endings and arbitrary text in its cells."""

import csv
from collections.abc import Iterable
from typing import TextIO


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
