"""Images whose categories are in a table or a list.

    labels.csv, or any other CSV      image,breed             separated by , ; | or tabs; two
                                      000bec18,boston_bull    columns may have no header
    metadata.csv, metadata.jsonl      {"file_name": "train/1.jpg", "label": "cat"}
                                      of a Hugging Face image folder
    train.jsonl, named by an MLTable  {"image_url": "azureml://subscriptions/…/paths/milk/1.jpg",
                                       "label": "milk", …}
                                      AutoML's training data for image classification

A table names an image by its path, or by the end of it, with or without its suffix. An `image_url`
is a path relative to the file, or a URL that ends in one: `azureml://` and `AmlDatastore://` URLs
start some levels above the file's directory, depending on where that was uploaded.
"""

import csv
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import msgspec
import numpy as np

from train_pytorch_model.config.wording import bulleted, parameter
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats import listing, reading
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.listing import UNLABELLED, Listing
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import META, NOT_JSON, MalformedFileError, read_lines

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
MLTABLE = "MLTable"
ANNOTATIONS_SUFFIX = ".jsonl"
MAX_DEPTH = 64  # path components of a URL that are tried
FILE_ADDRESS = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)  # the part before the path
MAX_LABEL_BYTES = 255  # a category may also be the name of a folder


class _RowError(Exception):
    """A row cannot be used; the text is the reason, without a final period."""


class _LabelledRows:
    """Collects the usable rows of a list, and the problems of the others."""

    def __init__(self, source: str) -> None:
        self.source = source
        # By the name of the file, relative to the folder of the images.
        self.labels: dict[str, str | None] = {}
        self.problems: list[str] = []
        self.ignored: Counter[str] = Counter()

    def add(self, name: str, label: object) -> None:
        """Add an image. Raises `_RowError`, also if an earlier row gives it another category."""
        text = _text_of(label)
        if name in self.labels:
            other = self.labels[name]
            if other != text:
                raise _RowError(
                    f"image {name!r} has label {other!r} in another row and {text!r} here"
                )
            self.ignored["duplicate rows"] += 1
        self.labels[name] = text

    def ignore(self, what: str, names: Sequence[str]) -> None:
        if names:
            self.ignored[f"{what} ({_some(names)})"] = len(names)

    def listing(self) -> Listing:
        """Return the images, by category and name.

        Raises `MalformedFileError` with all problems.
        """
        self._check()
        used = {label for label in self.labels.values() if label is not None}
        categories = sorted(used, key=listing.natural_order)
        listing.check_category_names(categories)
        index_of: dict[str | None, int] = {name: index for index, name in enumerate(categories)}
        class_of = {name: index_of.get(label, UNLABELLED) for name, label in self.labels.items()}
        names = sorted(self.labels, key=lambda name: (class_of[name], listing.natural_order(name)))
        return Listing(
            file_names=listing.Packer(names).finish(),
            class_indices=np.asarray([class_of[name] for name in names], dtype=np.int32),
            categories=tuple(categories),
            columns=("id", "category") if categories else ("id",),
            ignored=dict(self.ignored),
        )

    def _check(self) -> None:
        problems = list(self.problems)
        unlabelled = [name for name, label in self.labels.items() if label is None]
        if len(unlabelled) < len(self.labels):
            problems += [f"image {name!r} has no label, but others do." for name in unlabelled]
        if problems:
            text = f"{len(problems)} rows of {self.source} cannot be used:{bulleted(problems)}\n"
            raise MalformedFileError(text)


def _text_of(label: object) -> str | None:
    """Return the label of a row as text, if it has one. Raises `_RowError`."""
    if label is None:
        return None
    if isinstance(label, list):
        raise _RowError(
            "its label is a list: multi-label data and boxes are not supported. One string is"
            " expected"
        )
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if not isinstance(label, str):
        raise _RowError(f"its label is {label!r}; a string is expected")
    size = len(label.encode())
    if not 0 < size <= MAX_LABEL_BYTES:
        raise _RowError(f"its label has {size} bytes; 1 to {MAX_LABEL_BYTES} are expected")
    return label


def table_in(folder: Path) -> Path | None:
    """Return the table of the images in a folder; None if there is none."""
    return next((folder / name for name in TABLES if os.path.isfile(folder / name)), None)


def open_labelled(
    folder: Path, port: str, hint: str = "", known: Collection[str] = ()
) -> ImageDirectory:
    """Open an image directory, or a plain folder with the categories that a table in it names.

    Without a table, a folder called like a `known` category is one.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    table = None if os.path.exists(folder / META) else table_in(folder)
    if table is None:
        return open_image_directory(folder, port, known)
    try:
        return images_of(read_table(table, folder), folder, port)
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{folder}"', str(error), hint) from error


def read_table(path: Path, images: Path, file_column: str = "", label_column: str = "") -> Listing:
    """List the images below `images` with the categories of a table.

    Columns that are not given are recognized by their names. Raises `MalformedFileError`.
    """
    files = _ImageFiles(images)
    is_json = listing.suffix_of(path.name) == ".jsonl"
    numbered = _json_rows(path) if is_json else _csv_rows(path, files)
    first = next(numbered, None)
    if first is None:
        raise MalformedFileError(f"{path.name} has no rows.")
    file_column = _column(path, first[1], file_column, FILE_COLUMNS, "file_column", 0)
    label_column = _column(path, first[1], label_column, LABEL_COLUMNS, "label_column", 1)

    rows = _LabelledRows(path.name)
    missing = []
    for number, row in chain([first], numbered):
        name = str(row.get(file_column) or "")
        try:
            file = files.find_one(name)
            if file is None:
                missing.append(name)
            else:
                rows.add(file, row.get(label_column))
        except _RowError as error:
            rows.problems.append(f"{path.name}:{number}: {error}.")
    if missing and not rows.labels:
        raise MalformedFileError(
            f"none of the images that {path.name} names is in {images}, such as {_some(missing)}."
            f" Its column {file_column!r} was taken for the names."
        )
    rows.ignore("rows without an image file", missing)
    unnamed = [name for name in files.names if name not in rows.labels]
    rows.ignore("images without a row", unnamed)
    return rows.listing()


class _ImageFiles:
    """The image files below a folder, found by what a table calls them."""

    def __init__(self, root: Path) -> None:
        self.names = list(listing.read_images_at_any_depth(root).file_names)
        self._by_end: dict[str, list[str]] = {}
        for name in self.names:
            parts = PurePosixPath(name).parts
            for first in range(len(parts)):
                end = "/".join(parts[first:])
                for key in {end, os.path.splitext(end)[0]}:  # noqa: PTH122, of a part of a path
                    self._by_end.setdefault(key, []).append(name)

    def find(self, named: str) -> list[str]:
        """Return the names, relative to the folder, of the files that may be meant."""
        parts = named.strip().replace("\\", "/").split("/")
        parts = [part for part in parts if part not in ("", ".")]
        for first in range(len(parts)):
            end = "/".join(parts[first:])
            if end in self._by_end:
                return self._by_end[end]
        return []

    def find_one(self, named: str) -> str | None:
        """Return the name of the file that is meant, if there is one. Raises `_RowError`."""
        names = self.find(named)
        if len(names) > 1:
            raise _RowError(f"image {named!r} may be any of {len(names)} files: {_some(names)}")
        return names[0] if names else None


def _csv_rows(path: Path, files: _ImageFiles) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the rows by column.

    The two columns of a table without a header are called `column 1` and `column 2`.
    """
    lines = (_decode(path, number, line) for number, line in read_lines(path))
    first = next(lines, "")
    delimiter = max(DELIMITERS, key=first.count)
    table = csv.reader(chain([first], lines), delimiter=delimiter, skipinitialspace=True)
    try:
        columns = [cell.strip() for cell in next(table)]
        if len(columns) == 2 and any(map(files.find, columns)):  # it names an image already
            first_row = columns
            columns = ["column 1", "column 2"]
            yield 1, dict(zip(columns, first_row, strict=True))
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
            f"{path.name}:{number} is not UTF-8. Save the table as CSV UTF-8, as spreadsheets call"
            " it."
        ) from error


def _json_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in read_lines(path):
        try:
            yield number, msgspec.json.decode(line, type=dict[str, Any])
        except NOT_JSON as error:
            raise MalformedFileError(
                f"{path.name}:{number} is not a JSON object: {error}."
            ) from error


def _column(
    path: Path, row: Mapping[str, Any], named: str, usual: Sequence[str], name: str, position: int
) -> str:
    """Return the column that is `named`, or has a `usual` name, or is at this `position` of two."""
    by_name = {_comparable(column): column for column in row}
    for wanted in [_comparable(named)] if named else usual:
        if wanted in by_name:
            return by_name[wanted]
    columns = ", ".join(map(repr, row))
    if named:
        raise MalformedFileError(f"{path.name} has no column {named!r}; it has {columns}.")
    if len(row) == 2:
        return list(row)[position]
    raise MalformedFileError(
        f"it is not clear which column of {path.name} is meant: it has {columns}. Name it with"
        f" {parameter(name)}."
    )


def _comparable(column: str) -> str:
    return column.strip().lower().replace(" ", "_")


def _some(names: Sequence[str]) -> str:
    more = ["…"] if len(names) > SHOWN else []
    return ", ".join([*map(repr, names[:SHOWN]), *more])


def annotations_of(root: Path) -> Path:
    """Return the JSONL file that the `MLTable` in a directory names.

    Raises `MalformedFileError`.
    """
    paths = reading.read_yaml(root / MLTABLE).get("paths")
    entries = paths if isinstance(paths, list) else []
    names = [entry.get("file") for entry in entries if isinstance(entry, dict)]
    if len(names) == 1 and isinstance(names[0], str) and names[0].endswith(ANNOTATIONS_SUFFIX):
        return reading.file_inside(root, names[0])
    raise MalformedFileError(
        f"{MLTABLE} should name one {ANNOTATIONS_SUFFIX} file under paths and names {names}."
    )


def read_annotations(path: Path, images: Path | None = None) -> Listing:
    """List the images of a JSONL file, relative to `images` or its folder.

    Raises `MalformedFileError`.
    """
    present = PresentFiles(path.parent if images is None else images)
    rows = _LabelledRows(path.name)
    for number, line in read_lines(path):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            if not isinstance(row.get("image_url"), str):
                raise _RowError('no string under "image_url"')
            rows.add(_resolve(present, row["image_url"]), row.get("label"))
        except _RowError as error:
            rows.problems.append(f"{path.name}:{number}: {error}.")
        except NOT_JSON as error:
            rows.problems.append(f"{path.name}:{number}: not a JSON object: {error}.")
    return rows.listing()


def _resolve(present: PresentFiles, url: str) -> str:
    """Return the name of the file relative to the folder of the images. Raises `_RowError`."""
    scheme = reading.scheme_of(url)
    if scheme == "":
        return _resolve_path(present, url)
    if scheme == "file":
        return _resolve_path(present, unquote(FILE_ADDRESS.sub("", url)))
    if scheme in reading.AZURE_SCHEMES:
        return _resolve_end(present, url)
    raise _RowError(
        f"image {url!r} is remote. Images are not fetched from the network: download them"
        " beside the file"
    )


def _resolve_path(present: PresentFiles, path: str) -> str:
    name = path
    root = present.root.absolute()
    if path.startswith("/") and Path(path).is_relative_to(root):
        name = Path(path).relative_to(root).as_posix()
    if not reading.is_inner_path(name):
        raise _RowError(f"image {name!r} is outside the directory of the file")
    name = PurePosixPath(name).as_posix()  # one name per image, without `./` and `//`
    reason = present.problem_with(name)
    if reason:
        raise _RowError(f"image {name!r} {reason}")
    return name


def _resolve_end(present: PresentFiles, url: str) -> str:
    """Return the longest end of a URL that names a file."""
    _, separator, path = url.partition("/paths/")
    parts = path.split("/") if separator else url.split("/")[3:]
    parts = [part for part in parts if part not in ("", ".")][-MAX_DEPTH:]
    for first in range(len(parts)):
        end = "/".join(parts[first:])
        for name in dict.fromkeys((end, unquote(end))):
            if reading.is_inner_path(name) and not present.problem_with(name):
                return name
    raise _RowError(f"image {url!r} is not below the directory of the file")
