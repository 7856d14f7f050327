"""Images whose categories are in a table.

    labels.csv, or any other CSV      image,breed             separated by , ; | or tabs; two
                                      000bec18,boston_bull    columns may have no header
    metadata.csv, metadata.jsonl      {"file_name": "train/1.jpg", "label": "cat"}
                                      of a Hugging Face image folder
    _classes.csv                      filename,cat,dog        a column per category, with a 1 for
                                      1.jpg,0,1               those of an image: Roboflow's

Where images have several categories, the column is called `labels`, `tags`, `categories` or
`classes`, and a cell is a list, `cat;dog`, `cat|dog` or `cat,dog`; in JSON, `["cat", "dog"]`. If
any row has several, all images have a list: an empty cell is an image of no category.

A table names an image by its path, or by the end of it, with or without its suffix. It may tell
which part an image is for, see `table_splits`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.formats.image_names import ImageNames
from train_pytorch_model.formats.labelled_rows import LabelledRows, RowError, some
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.table_columns import (
    ChosenColumns,
    choose_columns,
    choose_file_column,
    labels_of,
)
from train_pytorch_model.formats.table_rows import Table, read_rows
from train_pytorch_model.formats.table_splits import NO_PART

SHOWN_COLUMNS = 5


@dataclass(frozen=True)
class LabelledListing:
    """The images that a table names."""

    listing: Listing
    parts: np.ndarray | None
    """(N,), int8: for each image an index into `PARTS`, or `NO_PART`; None if the table does not
    tell."""
    columns: ChosenColumns
    table: str
    """The name of its file."""


def read_table(path: Path, images: Path, options: TableOptions = BY_DEFAULT) -> LabelledListing:
    """List the images below `images` with the categories of a table.

    Raises `MalformedFileError`, `UnclearLabelError`.
    """
    return TableReader(path, ImageNames(images), options).read()


class TableReader:
    """Reads a table whose images are listed already."""

    def __init__(self, path: Path, files: ImageNames, options: TableOptions) -> None:
        self.path = path
        self._files = files
        self._options = options
        self._table = read_rows(path, files.finds)
        ways = (files.finds, files.finds_in_any_case)
        self._file_column, num_found = choose_file_column(self._table, options, ways)
        self.names_images = num_found > 0

    def read(self, folders: Sequence[str] = ()) -> LabelledListing:
        """List the images with their categories; `folders` are what else may be the categories.

        Raises `MalformedFileError`, `UnclearLabelError`.
        """
        table = self._table
        columns = choose_columns(table, self._file_column, self._options, folders)
        rows = self._match(columns)
        listing = rows.listing()
        parts = None
        if columns.split:
            parts = np.asarray(
                [rows.parts.get(name, NO_PART) for name in listing.file_names], dtype=np.int8
            )
        origin = _describe(table, columns) if listing.categories else ""
        notes = (*columns.notes, *self._notes(bool(columns.labels)), *listing.notes)
        listing = replace(listing, origin=origin, notes=notes)
        return LabelledListing(listing, parts, columns, table.name)

    def _match(self, columns: ChosenColumns) -> LabelledRows:
        """Return the images of the rows. Raises `MalformedFileError` if there are none."""
        table = self._table
        rows = LabelledRows(table.name)
        names = table.columns[columns.file]
        labels = labels_of(table, columns)
        parts = columns.split.parts.tolist() if columns.split else [NO_PART] * len(table)
        missing = []
        for line, cell, label, part in zip(table.lines, names, labels, parts, strict=True):
            name = "" if cell is None else str(cell)
            try:
                file = self._files.find_one(name)
                if file is None:
                    missing.append(name)
                else:
                    rows.add(file, label, part)
            except RowError as error:
                rows.problems.append(f"{table.name}:{line}: {error}.")
        if missing and not rows.labels and not rows.problems:
            raise MalformedFileError(
                f"none of the images that {table.name} names is in {self._files.root}, such as"
                f" {some(missing)}. Its column {columns.file!r} was taken for the names;"
                f" {parameter('file_column')} names another."
            )
        rows.ignore("rows without an image file", missing)
        unnamed = [name for name in self._files.names if name not in rows.labels]
        rows.ignore("images without a row", unnamed)
        return rows

    def _notes(self, has_labels: bool) -> Iterator[str]:
        found = self._files.other_case
        if found:
            yield (
                f"{len(found):,} images are called otherwise in {self._table.name}, in upper or"
                f" lower case, and are found nevertheless ({some(found)})."
            )
        if not has_labels:
            columns = some(list(self._table.columns))
            yield f"{self._table.name} has no column of categories, only {columns}."


def _describe(table: Table, columns: ChosenColumns) -> str:
    """Return where the categories are from, in a few words."""
    if len(columns.labels) == 1:
        text = f"column {columns.labels[0]!r} of {table.name}"
        if columns.separator:
            text += f", lists separated by {columns.separator!r}"
    else:
        text = f"the columns of {table.name}, one for each"
    unused = list(columns.unused)
    if unused:
        more = ", …" if len(unused) > SHOWN_COLUMNS else ""
        text += f" (not used: {', '.join(unused[:SHOWN_COLUMNS])}{more})"
    return text
