"""CSV with lines that end as on Unix, of cells that may hold anything."""

import csv
from collections.abc import Iterable
from typing import TextIO


class _UnixLines:
    """Passes on lines that end in CR LF with LF alone."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, line: str) -> None:
        self._file.write(line.removesuffix("\r\n") + "\n")


def write_rows(file: TextIO, rows: Iterable[Iterable[object]]) -> None:
    """Write rows to a file opened with `newline=""`.

    Readers take a lone carriage return for the end of a row. Python 3.11 quotes it only where a row ends with
    one, and so do ours, up to the last moment.
    """
    csv.writer(_UnixLines(file), lineterminator="\r\n").writerows(rows)
