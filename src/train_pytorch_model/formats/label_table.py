"""Images whose categories are in a table: a CSV file, or the metadata file of a Hugging Face image folder.

    labels.csv, or any other CSV      image,breed             separated by , ; | or tabs; with or without
                                      000bec18,boston_bull    a header, if there are two columns
    metadata.csv, metadata.jsonl      {"file_name": "train/1.jpg", "label": "cat"}

An image is named by its path, or by the end of it, with or without its suffix.
"""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from train_pytorch_model.formats.image_directory import ImageDirectory, images_of, open_image_directory
from train_pytorch_model.formats.labelled_rows import LabelledRows, RowError, checked_label
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.plain_folders import (
    read_images_at_any_depth,
    read_plain_folders,
    suffix_of,
)
from train_pytorch_model.formats.reading import META, MalformedFileError, read_lines
from train_pytorch_model.words.errors import InvalidDatasetError
from train_pytorch_model.words.wording import parameter

TABLES = ("metadata.jsonl", "metadata.csv", "labels.csv")  # looked for in a folder, in this order
TABLE_SUFFIXES = (".csv", ".tsv")
DELIMITERS = ",;\t|"
# Names of columns in lower case, in the order in which they are looked for.
FILE_COLUMNS = (
    "file_name", "filename", "file", "image", "image_name", "image_path", "image_id",
    "filepath", "file_path", "path", "img", "id", "name",
)  # fmt: skip
LABEL_COLUMNS = (
    "label", "category", "class", "class_name", "label_name", "labels", "target",
    "species", "breed", "diagnosis", "y",
)  # fmt: skip
SHOWN = 3


def table_in(folder: Path) -> Path | None:
    """Return the table of the images in a folder; None if there is none."""
    return next((folder / name for name in TABLES if (folder / name).is_file()), None)


def open_labelled(folder: Path, port: str, hint: str = "") -> ImageDirectory:
    """Like `open_image_directory`, with the categories that a table in a plain folder gives its images."""
    table = None if (folder / META).exists() else table_in(folder)
    if table is None:
        return open_image_directory(folder, port)
    try:
        return images_of(read_table(table, folder), folder, port)
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{folder}"', str(error), hint) from error


def list_labelled(
    folder: Path, table: Path | None = None, file_column: str = "", label_column: str = ""
) -> Listing:
    """Return a folder's images by a table, given or in the folder, or else by the folders in it.

    Raises `MalformedFileError`.
    """
    table = table or table_in(folder)
    return read_table(table, folder, file_column, label_column) if table else read_plain_folders(folder)


def read_table(path: Path, images: Path, file_column: str = "", label_column: str = "") -> Listing:
    """Return the images below the folder `images` that the table names, with paths relative to the folder.

    Columns that are not given are found by their names. Rows without a file, and files without a row, are
    counted in `Listing.ignored`. Raises `MalformedFileError`.
    """
    files = _ImageFiles(images)
    numbered = _json_rows(path) if suffix_of(path.name) == ".jsonl" else _csv_rows(path, files)
    first = next(numbered, None)
    if first is None:
        raise MalformedFileError(f"{path.name} has no rows.")
    file_column = _column(path, first[1], file_column, FILE_COLUMNS, "file_column", 0)
    label_column = _column(path, first[1], label_column, LABEL_COLUMNS, "label_column", 1)
    rows, missing = LabelledRows(path.name), []
    for number, row in chain([first], numbered):
        try:
            named = str(row.get(file_column) or "")
            if (name := files.find(named)) is None:
                missing.append(named)
            else:
                rows.add(name, checked_label(row.get(label_column)))
        except RowError as error:
            rows.problems.append(f"{path.name}:{number}: {error}.")
    if missing and not rows.labels:
        raise MalformedFileError(
            f"none of the images that {path.name} names is in {images}, such as {_some(missing)}. Its column"
            f" {file_column!r} was taken for the names."
        )
    unnamed = [name for name in files.names if name not in rows.labels]
    for what, names in (("rows without an image file", missing), ("images without a row", unnamed)):
        if names:
            rows.ignored[f"{what} ({_some(names)})"] = len(names)
    return rows.listing()


class _ImageFiles:
    """The image files below a folder, found by what a table calls them."""

    def __init__(self, root: Path) -> None:
        self.names = list(read_images_at_any_depth(root).file_names)
        self._by_end: dict[str, list[str]] = {}
        for name in self.names:
            parts = PurePosixPath(name).parts
            for first in range(len(parts)):
                end = "/".join(parts[first:])
                for key in {end, os.path.splitext(end)[0]}:  # noqa: PTH122, of a part of a path
                    self._by_end.setdefault(key, []).append(name)

    def find(self, named: str) -> str | None:
        """Return the file's name relative to the folder; None if there is none. Raises `RowError`."""
        parts = [part for part in named.strip().replace("\\", "/").split("/") if part not in ("", ".")]
        for first in range(len(parts)):
            if found := self._by_end.get("/".join(parts[first:])):
                if len(found) > 1:
                    raise RowError(f"image {named!r} may be any of {len(found)} files: {_some(found)}")
                return found[0]
        return None


def _csv_rows(path: Path, files: _ImageFiles) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows by column; the columns of a table without a header are called `column 1` and so on."""
    lines = (_decode(path, number, line) for number, line in read_lines(path))
    first = next(lines, "")
    delimiter = max(DELIMITERS, key=first.count)
    table = csv.reader(chain([first], lines), delimiter=delimiter, skipinitialspace=True)
    try:
        header = [cell.strip() for cell in next(table)]
        if len(header) == 2 and any(map(files.find, header)):  # it names an image already
            columns = [f"column {number}" for number in (1, 2)]
            yield 1, dict(zip(columns, header, strict=True))
        else:
            columns = header
        for row in table:
            cells = [cell.strip() or None for cell in row]
            yield table.line_num, dict(zip(columns, cells, strict=False))
    except csv.Error as error:
        raise MalformedFileError(f"{path.name}:{table.line_num}: {error}.") from error


def _decode(path: Path, number: int, line: bytes) -> str:
    try:
        return line.decode() + "\n"
    except UnicodeDecodeError as error:
        raise MalformedFileError(
            f"{path.name}:{number} is not UTF-8. Save the table as CSV UTF-8, as spreadsheets call it."
        ) from error


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in read_lines(path):
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
            raise MalformedFileError(f"{path.name}:{number} is not a JSON object: {error}.") from error


def _column(
    path: Path, row: Mapping[str, Any], given: str, usual: Sequence[str], name: str, place: int
) -> str:
    """Return the column that is `given`, or has a `usual` name, or is at this `place` of two."""
    by_name = {column.strip().lower().replace(" ", "_"): column for column in row}
    wanted = [given.strip().lower().replace(" ", "_")] if given else usual
    for each in wanted:
        if each in by_name:
            return by_name[each]
    columns = list(row)
    if not given and len(columns) == 2:
        return columns[place]
    raise MalformedFileError(
        f"{path.name} has no column {given!r}; it has {', '.join(map(repr, columns))}."
        if given
        else f"it is not clear which column of {path.name} is meant: it has {', '.join(map(repr, columns))}."
        f" Name it with {parameter(name)}."
    )


def _some(names: Sequence[str]) -> str:
    more = ["…"] if len(names) > SHOWN else []
    return ", ".join([*map(repr, names[:SHOWN]), *more])
