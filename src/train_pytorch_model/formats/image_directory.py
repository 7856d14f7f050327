"""ImageDirectory: images with or without categories, also the designer's, or plain class folders.

    _meta.yaml      type: ImageDirectory
                    extension: {}
                    image_list: images.lst
                    samples: _samples.json
                    schema: _schema.json
    images.lst      one JSON object per line, in item order, no blank lines:
                    {"image_info": {"file_name": "image/1_134.jpg"}, "category": "dog", "id": 134}
                    convert and split add "original" to "image_info", for information:
                    the file's previous name
    _schema.json    the columns, see `schema`; the category column declares the categories
    _samples.json   the first rows, the image as base64 under "image"
    image/…         the files

`category` is absent from the schema and the rows of an unlabelled directory. Where images have any
number of categories, each row has a list of them instead, which may be empty:

                    {"image_info": {"file_name": "image/1_7.jpg"}, "categories": ["cat", "dog"],
                     "id": 7}

Class indices follow
the order of the declared ids; gaps between the ids are closed.

A directory without `_meta.yaml` is read as `plain_folders`, `<category>/<file>`, categories in
natural order; files at its root without any folders form an unlabelled directory.
"""

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np

from train_pytorch_model.config.wording import bulleted, for_fit_or, worded
from train_pytorch_model.errors import InvalidDatasetError, NotLabeledDatasetError
from train_pytorch_model.formats import (
    image_list,
    label_sets,
    listing,
    plain_folders,
    reading,
    schema,
)
from train_pytorch_model.formats.label_kinds import (
    CATEGORIES_COLUMN,
    CATEGORY_COLUMN,
)
from train_pytorch_model.formats.listing import SUFFIXES, UNLABELLED, Listing, is_utf8
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.writing import write_json

IMAGE_LIST = "images.lst"
IMAGE_FOLDER = "image"
ORIGINAL = "original"
MAX_ORIGINAL = 4096  # characters; Linux limits a path to as many bytes
LABELS_HINT = (
    "Training needs a category for every image: one folder per category, or a labelled"
    " ImageDirectory."
)
FIT_HINT = (
    "Name a folder with one folder per category in it, with a labels.csv, or with such folders"
    " called train, val and test."
)
HINT = (
    "An image directory holds one folder per category with the images in it, or what Convert to"
    " Image Directory writes."
)
CONVERT_HINT = (
    "To make one from an archive or a list of images, run `python -m train_pytorch_model convert"
    " --input FILE --output DIRECTORY`."
)
UNPACK_HINT = "Unpack an archive, and name its folder."  # in Python


@dataclass(frozen=True, kw_only=True)
class ImageDirectory(Listing):
    """The images of a directory, by index: file names, class indices, categories."""

    root: Path  # the file names are relative to it
    port: str  # its name in messages, such as `Training dataset`
    # (N,), int64: the index of the item in `images.lst` or in the listing, counted from 0.
    rows: np.ndarray
    is_relabelled: bool = False  # whether categories differ from what the list says

    @property
    def title(self) -> str:
        """Return how messages call the directory."""
        return f'{self.port} "{self.root}"'

    @property
    def name(self) -> str:
        """Return the name of the folder; the rest of its path is private."""
        return self.root.resolve().name

    @property
    def _is_copy(self) -> bool:
        """Return whether there is an image list; else these are plain folders."""
        return (self.root / META).exists()

    def __len__(self) -> int:
        return len(self.file_names)

    def path(self, index: int) -> Path:
        return self.root / self.file_names[index]

    def paths(self) -> list[Path]:
        """Return the files of all images."""
        return [self.path(index) for index in range(len(self))]

    @property
    def is_multi_label(self) -> bool:
        """Return whether images have any number of categories, and not one each."""
        return self.labels.is_multi_label

    def as_multi_label(self) -> "ImageDirectory":
        """Return the same images with lists of categories, of one each if they have one each."""
        if not self.categories:
            return self
        return replace(self, labels=self.labels.as_sets(len(self.categories)))

    def class_counts(self) -> np.ndarray:
        """Return (number of categories,), int64: the number of images of each."""
        return self.labels.counts(self.class_indices, len(self.categories))

    def targets(self, indices: np.ndarray) -> np.ndarray:
        """Return what training is to learn of the images at `indices` (B,).

        These are class indices (B,), int64, or which categories they have, (B, C), float32.
        """
        return self.labels.targets(self.class_indices[indices])

    def marks(self, indices: np.ndarray) -> np.ndarray:
        """Return which categories the images at `indices` (B,) have, (B, C), bool."""
        return self.labels.marks(self.class_indices[indices], len(self.categories))

    def with_category(self, class_index: int) -> np.ndarray:
        """Return the indices of the images that have this category, (K,), int64."""
        return np.flatnonzero(self.labels.has(self.class_indices, class_index))

    def categories_of(self, index: int) -> tuple[str, ...]:
        """Return the names of the categories of an image."""
        members = self.labels.members(int(self.class_indices[index]))
        return tuple(self.categories[member] for member in members)

    def label_with(self, index: int, class_index: int) -> str:
        """Return the label that an image would have if it were wrong about a category, as text.

        That is the other category, or the list with it, or without it if the image has it.
        """
        members = self.labels.members_with(int(self.class_indices[index]), class_index)
        return label_sets.text_of([self.categories[member] for member in members])

    def category_of(self, index: int) -> str:
        """Return the categories of an image as one text; empty without any."""
        return label_sets.text_of(self.categories_of(index))

    def select(self, indices: np.ndarray) -> "ImageDirectory":
        """Return the same directory with only the images at `indices`."""
        return replace(
            self,
            file_names=self.file_names.select(indices),
            class_indices=self.class_indices[indices],
            rows=self.rows[indices],
        )

    def without(self, indices: Sequence[int] | np.ndarray) -> "ImageDirectory":
        """Return the same directory without the images at `indices`."""
        if not len(indices):
            return self
        return self.select(np.setdiff1d(np.arange(len(self)), indices))

    def indices_in(
        self, whole: "ImageDirectory", indices: Sequence[int] | np.ndarray
    ) -> np.ndarray:
        """Map indices in this directory to indices in `whole`, of which it is a part."""
        return np.searchsorted(whole.rows, self.rows[indices])

    def with_categories(self, categories: Sequence[str]) -> "ImageDirectory":
        """Return the same images with class indices into `categories`.

        These are the directory's categories in another order, or a superset.
        """
        index_of = {listing.comparable(name): index for index, name in enumerate(categories)}
        new_indices = np.asarray(
            [index_of[listing.comparable(name)] for name in self.categories], dtype=np.int32
        )
        return self.renumbered(categories, new_indices)

    def renumbered(self, categories: Sequence[str], new_indices: np.ndarray) -> "ImageDirectory":
        """Return the same images with the class indices (C,) of these categories.

        The index of a category that no image has any more is negative.
        """
        labels, class_indices = self.labels.renumbered(
            self.class_indices, new_indices, len(categories)
        )
        return replace(
            self, categories=tuple(categories), labels=labels, class_indices=class_indices
        )

    def warnings(self) -> list[str]:
        """Return warnings about empty categories, repeated files and skipped entries."""
        warnings = [f"{self.title}: {note}" for note in self.notes]
        empty = []
        if self.categories:
            without_images = np.flatnonzero(self.class_counts() == 0)
            empty = [repr(self.categories[index]) for index in without_images]
        if empty:
            warnings.append(f"{self.title} has no image of category{bulleted(empty)}")
        if self.repeated:
            warnings.append(
                f"{self.title} lists images more than once: {self.repeated:,} rows repeat the file"
                " of an earlier row. Each row counts as an image."
            )
        if self.ignored:
            entries = ", ".join(f"{what}: {count:,}" for what, count in self.ignored.items())
            warnings.append(f"{self.title}: skipped: {entries}.")
        return warnings

    def notes_as_sentences(self) -> list[str]:
        """Return how the folders and tables were understood, for a message."""
        return [f"{note[:1].upper()}{note[1:]}" for note in self.notes]

    def require_labels(self, hint: str = LABELS_HINT) -> None:
        """Raise `NotLabeledDatasetError` if there are no categories, or few images have one."""
        loose = self.ignored.get(listing.LOOSE, 0)
        if self.categories and loose <= len(self):
            return
        if self.categories:
            hint = f"{loose:,} images are beside its folders, and {len(self):,} in them. {hint}"
        hint = " ".join([*self.notes, hint])
        raise NotLabeledDatasetError(f"{self.port} {self.root}", hint)

    def read_rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each file's name before it was copied, or "", and its row.

        Raises `InvalidDatasetError`.
        """
        reference = schema.image_column(self.read_schema())[1] if self._is_copy else ""
        for name, row in zip(self.file_names, self.read_listed_rows(), strict=False):
            original = ""
            file = row.get(reference)
            if isinstance(file, dict) and file.get("file_name") == name:
                original = file.get(ORIGINAL, "")
            if not isinstance(original, str):
                original = ""
            columns = {column: row.get(column) for column in self.columns}
            yield original[:MAX_ORIGINAL], columns

    def original_names(self, indices: np.ndarray) -> list[str]:
        """Return the name of each image's file before it was copied; empty if unknown."""
        names = dict.fromkeys(indices.tolist(), "")
        if names and self._is_copy:
            in_order = np.unique(indices)
            with suppress(Exception):  # for information only, and the list may have changed
                rows = self.select(in_order).read_rows()
                for index, (original, _) in zip(in_order.tolist(), rows, strict=False):
                    names[index] = original
        return [names[index] for index in indices.tolist()]

    def read_listed_rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the list, or those that convert would write.

        Raises `InvalidDatasetError`.
        """
        if not self._is_copy:
            yield from map(self.converted_row, range(len(self)))
            return
        if not self.is_relabelled:
            yield from self._read_list()
            return
        label = schema.label_column(self.read_schema())
        for row, class_index in zip(self._read_list(), self.class_indices.tolist(), strict=False):
            yield row | {label: self.categories[class_index]}

    def _read_list(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of the list as they are. Raises `InvalidDatasetError`."""
        list_name = str(reading.read_yaml(self.root / META)["image_list"])
        following = 0  # the row of the next line
        with (self.root / list_name).open("rb") as file:
            for row in self.rows.tolist():
                for line in islice(file, row - following, row - following + 1):
                    yield self._parse_row(line, f"{list_name}:{row + 1}")
                following = row + 1

    def _parse_row(self, line: bytes, where: str) -> dict[str, Any]:
        # Opening checks only image and category: other columns may hold oversized numbers.
        try:
            row: dict[str, Any] = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = str(error).partition(";")[0]  # the rest is advice for programmers
            text = f"{where}: the row cannot be read: {reason}."
            hint = "Correct the row, or leave it out."
            raise InvalidDatasetError(self.title, text, hint) from error
        return row

    def converted_row(self, index: int) -> dict[str, Any]:
        """Return the row that convert writes for an image of plain folders.

        The file of an image with a category gets a short name.
        """
        row = int(self.rows[index])
        class_index = int(self.class_indices[index])
        name = self.file_names[index]
        suffix = PurePosixPath(name).suffix
        if class_index != UNLABELLED:
            converted = f"{IMAGE_FOLDER}/{class_index}_{row}{suffix}"
            return image_row(converted, row, self.label_of(index), name)
        if is_utf8(name):
            return image_row(f"{IMAGE_FOLDER}/{name}", row, None)
        # The list cannot hold undecodable bytes.
        return image_row(f"{IMAGE_FOLDER}/unnamed_{row}{suffix}", row, None, name)

    def label_of(self, index: int) -> str | list[str]:
        """Return an image's category, or a list if images have any number of them."""
        categories = self.categories_of(index)
        return self.labels.label(categories)

    def read_schema(self) -> dict[str, Any]:
        """Return the content of `_schema.json`; of plain folders, what convert would write."""
        if not self._is_copy:
            return schema.image_schema(self.categories, self.labels)
        meta = reading.read_yaml(self.root / META)
        content = reading.read_json(self.root / meta["schema"], dict[str, Any])
        return schema.with_categories(content, self.categories) if self.is_relabelled else content

    def fingerprint(self) -> str:
        """Return the sha256 of the categories, the file names and the class indices."""
        digest = hashlib.sha256(json.dumps(self.categories).encode())
        digest.update(self.file_names.blob)
        digest.update(np.diff(self.file_names.offsets).astype("<i4").tobytes())
        digest.update(self.class_indices.astype("<i4").tobytes())
        digest.update(self.labels.content())
        return digest.hexdigest()


def open_image_directory(root: Path, port: str, known: Collection[str] = ()) -> ImageDirectory:
    """Open and check the input `port`; a folder called like a `known` category is one.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    title = f'{port} "{root}"'
    names = _entries(root, title)
    if INCOMPLETE in names or (META not in names and names & {IMAGE_LIST, schema.SCHEMA}):
        again = "Run the program that writes it again."
        raise InvalidDatasetError(title, f"it is incomplete: {META} is not written yet.", again)
    try:
        if META in names:
            images = image_list.read_image_list(root)
        else:
            images = plain_folders.read_plain_folders(root, known)
    except listing.UnlabelledRowsError as error:
        raise NotLabeledDatasetError(f"{port} {root}", f"{error}\n{LABELS_HINT}") from error
    except plain_folders.NestedDataSetError as error:
        folders = sorted(name for name in names if (root / name).is_dir())
        data_set = str(root / _data_set_for(port, [error.name, *folders]))
        hint = f"Name one data set, such as {data_set!r}."
        raise InvalidDatasetError(title, str(error), hint) from error
    except reading.MalformedFileError as error:
        raise InvalidDatasetError(title, str(error), _hint()) from error
    return images_of(images, root, port)


def _entries(root: Path, title: str) -> set[str]:
    """Return the names in a directory. Raises `InvalidDatasetError` if there are none."""
    if not os.path.exists(root):
        # An image or an archive may be meant.
        kind = "file or directory" if root.suffix else "directory"
        raise InvalidDatasetError(title, explain_missing(root, kind), _hint())
    if not root.is_dir():
        is_image = listing.suffix_of(root.name) in SUFFIXES
        hint = "Put the image into a folder, and name the folder." if is_image else _file_hint()
        raise InvalidDatasetError(title, "it is a file, not a directory.", hint)
    try:
        names = {entry.name for entry in os.scandir(root)}
    except OSError as error:
        raise InvalidDatasetError(title, f"it cannot be listed: {error.strerror}.") from error
    if not names:
        raise InvalidDatasetError(title, "it is empty.", _hint())
    return names


def _file_hint() -> str:
    """Return what an image directory is, and how one is made of a file."""
    return f"{_hint()} {worded(CONVERT_HINT, UNPACK_HINT)}"


def _data_set_for(port: str, folders: Sequence[str]) -> str:
    """Return the folder that is named like the port, or else the first one."""
    start = "train"
    if port.startswith("Validation"):
        start = "val"
    elif port == "Dataset":
        start = "test"
    return next((folder for folder in folders if folder.startswith(start)), folders[0])


def _hint() -> str:
    """Return what an image directory is, for `fit` and for other verbs."""
    return for_fit_or(FIT_HINT, HINT)


def images_of(images: Listing, root: Path, port: str) -> ImageDirectory:
    """Return the image directory of a listing of `root`.

    Raises `InvalidDatasetError` if it has no image.
    """
    if len(images.file_names) == 0:
        reason = f"no image in it ({' '.join(sorted(SUFFIXES))})."
        others = bulleted([f"{what}: {count:,}" for what, count in images.ignored.items()])
        hint = f"{_hint()} Found instead:{others}" if others else _hint()
        raise InvalidDatasetError(f'{port} "{root}"', reason, hint)
    rows = np.arange(len(images.file_names), dtype=np.int64)
    return ImageDirectory(**vars(images), root=root, port=port, rows=rows)


@contextmanager
def writing_image_directory(
    path: Path, schema_content: Mapping[str, Any], name: str, overwrite: bool = False
) -> "Iterator[ImageDirectoryWriter]":
    """Open a new or empty directory to fill, for a `with`, or one to `overwrite` when it is.

    Raises `OutputDirectoryError`, also for an `OSError` within.
    """
    meta = {
        "type": image_list.TYPE,
        "extension": {},
        "image_list": IMAGE_LIST,
        "samples": schema.SAMPLES,
        "schema": schema.SCHEMA,
    }
    with writing_directory(path, meta, name, overwrite=overwrite) as root:
        with (root / IMAGE_LIST).open("w", encoding="ascii") as lines:
            writer = ImageDirectoryWriter(root, schema_content, lines)
            yield writer
        write_json(root / schema.SCHEMA, writer.schema_content)
        samples = schema.image_samples(writer.first_rows, writer.image_column)
        write_json(root / schema.SAMPLES, samples)


class ImageDirectoryWriter:
    """Writes an ImageDirectory: files in any order and from any thread, rows in item order."""

    def __init__(self, root: Path, schema_content: Mapping[str, Any], lines: IO[str]) -> None:
        self.root = root
        self.schema_content = schema_content  # written last
        self.image_column, self._reference = schema.image_column(schema_content)
        names = [column["name"] for column in schema_content["columnAttributes"]]
        self._other_columns = [name for name in names if name != self.image_column]
        self._lines = lines
        self._make_folder = cache(lambda folder: folder.mkdir(parents=True, exist_ok=True))
        self.first_rows: list[tuple[Path, Mapping[str, Any]]] = []

    def path_for(self, row: Mapping[str, Any]) -> Path:
        """Return the path for the file of a row; create its folder."""
        path = self.root / str(row[self._reference]["file_name"])
        self._make_folder(path.parent)
        return path

    def written_list(self) -> Path:
        """Return the image list, with all rows that have been added."""
        self._lines.flush()
        return self.root / IMAGE_LIST

    def add(self, row: Mapping[str, Any]) -> None:
        """Append the row of a file that has been written to the image list."""
        self._lines.write(json.dumps(row) + "\n")
        if len(self.first_rows) < schema.NUM_SAMPLES:
            shown = {name: row[name] for name in self._other_columns if name in row}
            self.first_rows.append((self.path_for(row), shown))


def image_row(
    file_name: str, item: int, label: str | list[str] | None, original: str | None = None
) -> dict[str, Any]:
    """Return a row of `images.lst`; its label is a category, a list of any number, or none at all.

    `original` is the file's previous name, if it was different.
    """
    reference = {"file_name": file_name}
    if original is not None:  # undecodable bytes are escaped, so that any reader accepts them
        reference[ORIGINAL] = original.encode(errors="backslashreplace").decode()
    columns: dict[str, Any] = {}
    if isinstance(label, list):
        columns = {CATEGORIES_COLUMN: label}
    elif label is not None:
        columns = {CATEGORY_COLUMN: label}
    return {schema.IMAGE_REFERENCE: reference, **columns, "id": item}
