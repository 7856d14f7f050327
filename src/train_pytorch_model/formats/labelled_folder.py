"""A folder of images whose categories are the names of its folders, or in a table.

A table beside folders of categories counts if it names the same categories, or if the user names
one of its columns. Otherwise the names of the folders are the categories, and a note says so.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import assignment, counted
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.automl_list import MLTABLE, annotations_of
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.image_names import ImageNames
from train_pytorch_model.formats.label_table import LabelledListing, TableReader
from train_pytorch_model.formats.labelled_rows import some
from train_pytorch_model.formats.listing import UNLABELLED, Listing, comparable, is_hidden
from train_pytorch_model.formats.part_names import is_container, parts_of
from train_pytorch_model.formats.reading import META, MalformedFileError
from train_pytorch_model.formats.table_files import (
    is_table,
    is_usual,
    spreadsheets_in,
    tables_in,
)
from train_pytorch_model.formats.table_splits import NO_PART

L = TypeVar("L", bound=Listing)
ReadFolders = Callable[[Path], Listing]


@dataclass(frozen=True)
class LabelledImages:
    """Images, and the part that a table tells for each."""

    images: ImageDirectory
    parts: np.ndarray | None = None
    """(N,), int8: an index into `PARTS`, or `NO_PART`; None if no table tells."""


@dataclass(frozen=True)
class LabelledFiles:
    """The files of a folder; `root` is the folder itself, or the one inside it that holds them."""

    listing: Listing
    root: Path
    parts: np.ndarray | None = None


def open_labelled(
    path: Path,
    port: str,
    options: TableOptions = BY_DEFAULT,
    table: Path | None = None,
    known: Collection[str] = (),
) -> LabelledImages:
    """Open an image directory, a folder with or without a table, or the table itself.

    A folder called like a `known` category is one. Raises `InvalidDatasetError`,
    `NotLabeledDatasetError`.
    """
    if table is None and is_table(path) and os.path.isfile(path):
        path, table = path.parent, path
    is_readable = os.path.isdir(path) and os.access(f"{path}/", os.R_OK | os.X_OK)
    if not is_readable or os.path.exists(path / META):
        return LabelledImages(open_image_directory(path, port, known))
    try:
        if table is not None:
            files = _read(_reader_of(table, ImageNames(path), options), path)
        else:
            files = read_labelled(
                path, options, lambda inner: open_image_directory(inner, port, known)
            )
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{path}"', str(error)) from error
    if isinstance(files.listing, ImageDirectory):
        return LabelledImages(files.listing, files.parts)
    return LabelledImages(images_of(files.listing, files.root, port), files.parts)


def read_labelled(path: Path, options: TableOptions, read_folders: ReadFolders) -> LabelledFiles:
    """List the images of a folder; `read_folders` lists those of folders of categories.

    Raises `MalformedFileError`, and what `read_folders` does.
    """
    is_named = options != BY_DEFAULT
    tables = tables_in(path)
    if not tables:
        if is_named:
            column = options.label_column or options.file_column or options.split_column
            raise MalformedFileError(
                f"there is no table in it that could have a column {column!r}. Put one into the"
                f" folder, such as labels.csv, or leave out the column. {_about_spreadsheets(path)}"
            )
        note = _about_spreadsheets(path)
        listing = read_folders(path)
        return LabelledFiles(_noted(listing, note) if note else listing, path)
    files = ImageNames(path)
    prefix, folders = _class_folders(files.names)
    has_folders = bool(folders) and not options.label_column
    reader, note = _choose(tables, files, options, has_folders)
    if reader is None:
        listing = read_folders(path / prefix)
        return LabelledFiles(_noted(listing, note) if note else listing, path / prefix)
    if has_folders:
        return _beside_folders(reader, path, prefix, read_folders, is_named)
    return _read(reader, path)


def has_labels(folder: Path) -> bool:
    """Return whether a folder tells categories itself: by folders, by a table or by a list."""
    if os.path.exists(folder / META) or tables_in(folder):
        return True
    with suppress(OSError), os.scandir(folder) as entries:
        return any(entry.is_dir() and not is_hidden(entry.name) for entry in entries)
    return False


def _about_spreadsheets(path: Path) -> str:
    names = spreadsheets_in(path)
    if not names:
        return ""
    return f"{some(names)} is a spreadsheet, which is not read. Save it as CSV, beside the images."


def _reader_of(table: Path, files: ImageNames, options: TableOptions) -> TableReader:
    if table.name == MLTABLE:
        table = annotations_of(table.parent)
    return TableReader(table, files, options)


def _read(reader: TableReader, path: Path) -> LabelledFiles:
    labelled = reader.read()
    return LabelledFiles(labelled.listing, path, labelled.parts)


def _choose(
    tables: Sequence[Path], files: ImageNames, options: TableOptions, has_folders: bool
) -> tuple[TableReader | None, str]:
    """Return the table of the images, or None and a note on a table that cannot be used.

    Raises `MalformedFileError`.
    """
    first = tables[0]
    if not has_folders and (is_usual(first) or len(tables) == 1):
        reader = _reader_of(first, files, options)  # the only choice: what is wrong with it counts
        return (reader if _may_be_meant(reader) else None), ""
    readers, problems = _read_all(tables, files, options)
    if not readers:
        return None, problems.get(first, "") if is_usual(first) else ""
    if is_usual(readers[0].path) or len(readers) == 1:
        return readers[0], ""
    names = some([reader.path.name for reader in readers])
    raise MalformedFileError(
        f"several tables in it name its images: {names}. Name one of them instead of the folder,"
        f" such as {readers[0].path}, or move the others away."
    )


def _read_all(
    tables: Sequence[Path], files: ImageNames, options: TableOptions
) -> tuple[list[TableReader], dict[Path, str]]:
    """Return the tables that may be meant, and notes on those that cannot be read."""
    readers = []
    problems = {}
    for table in tables:
        try:
            reader = _reader_of(table, files, options)
        except MalformedFileError as error:
            problems[table] = f"{table.name} is not used: {error}"
        else:
            if _may_be_meant(reader):
                readers.append(reader)
    return readers, problems


def _may_be_meant(reader: TableReader) -> bool:
    return reader.names_images or is_usual(reader.path)


def _class_folders(names: Sequence[str]) -> tuple[str, Sequence[str]]:
    """Return the folders that may be categories, and the path of the folder that holds them."""
    in_folders = [name for name in names if "/" in name]
    if len(in_folders) * 2 < len(names) or not in_folders:
        return "", ()
    prefix = os.path.commonpath([os.path.dirname(name) for name in in_folders])  # noqa: PTH120
    start = len(prefix) + 1 if prefix else 0
    folders = sorted({name[start:].partition("/")[0] for name in in_folders if "/" in name[start:]})
    if len(folders) < 2 or len(parts_of(folders)) == len(folders):
        return "", ()
    if all(map(is_container, folders)):
        return "", ()
    return prefix, folders


def _beside_folders(
    reader: TableReader, path: Path, prefix: str, read_folders: ReadFolders, is_named: bool
) -> LabelledFiles:
    """List folders of categories with a table beside them. Raises `MalformedFileError`."""
    root = path / prefix
    listing = read_folders(root)
    try:
        labelled = reader.read(listing.categories)
    except MalformedFileError as error:
        if is_named:
            raise
        return LabelledFiles(_noted(listing, f"{reader.path.name} is not used: {error}"), root)
    if labelled.listing.labels.is_multi_label:
        note = f"the lists of {labelled.table} count, not the names of the folders."
        return LabelledFiles(_noted(labelled.listing, note), path, labelled.parts)
    listing = _noted(listing, *labelled.listing.notes)
    start = f"{prefix}/" if prefix else ""
    names = [start + name for name in listing.file_names]
    return LabelledFiles(_compare(listing, names, labelled), root, _parts_of(names, labelled))


def _compare(images: L, names: Sequence[str], labelled: LabelledListing) -> L:
    """Return the images with the categories of their folders, or of a table that has the same."""
    category_of = _categories_by_name(labelled)
    index_of = {comparable(name): index for index, name in enumerate(images.categories)}
    categories = labelled.listing.categories
    if not categories:
        return images
    indices = np.asarray(
        [
            index_of.get(comparable(category_of[name]), UNLABELLED) if name in category_of else own
            for name, own in zip(names, images.class_indices.tolist(), strict=True)
        ],
        dtype=np.int32,
    )
    news = np.flatnonzero(indices != images.class_indices).tolist()
    if not news:
        return images
    if set(map(comparable, categories)) != set(index_of):
        return _noted(images, _about_news(labelled))
    number = counted(len(news), "image has", "images have")
    first = some([names[index] for index in news])
    return replace(
        _noted(
            images,
            f"{number} another category in {labelled.table} than by their folders ({first}): the"
            " table counts.",
        ),
        class_indices=indices,
        origin=f"{labelled.listing.origin}, else by folder",
    )


def _noted(images: L, *notes: str) -> L:
    return replace(images, notes=(*images.notes, *notes))


def _categories_by_name(labelled: LabelledListing) -> Mapping[str, str]:
    listing = labelled.listing
    if not listing.categories:
        return {}
    indices = listing.class_indices.tolist()
    categories = listing.categories
    return {
        name: categories[index] for name, index in zip(listing.file_names, indices, strict=True)
    }


def _parts_of(names: Sequence[str], labelled: LabelledListing) -> np.ndarray | None:
    """Return the parts in the order of the names."""
    if labelled.parts is None:
        return None
    part_of = dict(zip(labelled.listing.file_names, labelled.parts.tolist(), strict=True))
    return np.asarray([part_of.get(name, NO_PART) for name in names], dtype=np.int8)


def _about_news(labelled: LabelledListing) -> str:
    columns = labelled.columns.labels
    categories = some(labelled.listing.categories)
    if len(columns) != 1:
        return f"{labelled.table} is not used: it names other categories ({categories})."
    column = columns[0]
    return (
        f"the column {column!r} of {labelled.table} is not used: it names other categories than"
        f" the folders ({categories}). {assignment('label_column', column)} takes those instead."
    )
