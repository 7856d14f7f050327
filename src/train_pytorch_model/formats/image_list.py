"""The designer's `images.lst`: millions of rows of untrusted input."""

import os
import re
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.formats import listing, reading
from train_pytorch_model.formats.label_kinds import (
    ONE_PER_IMAGE,
    LabelKind,
    OnePerImage,
    SetsPerImage,
)
from train_pytorch_model.formats.label_sets import LabelSets, text_of
from train_pytorch_model.formats.listing import UNLABELLED, Listing
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import NOT_JSON, MalformedFileError, is_really_inside
from train_pytorch_model.formats.schema import SCHEMA, ImageSchema, read_image_schema

TYPE = "ImageDirectory"
BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
BLOCK_BYTES = 2 << 20  # read at a time; also the longest line allowed
CHECKED_AT_ONCE = 1 << 16  # rows


class _Problem(NamedTuple):
    """Problems are sorted by row, and those of a row by their kind."""

    row: int
    kind: int  # of the image (0) or of its category (1)
    text: str


class _ImageReference(msgspec.Struct):
    file_name: str | None = None


def read_image_list(root: Path) -> Listing:
    """Read and check the rows of `images.lst`.

    Raises `MalformedFileError`, `UnlabelledRowsError`.
    """
    meta = reading.read_meta(root, TYPE)
    path = reading.named_file(root, meta, "image_list")
    schema = read_image_schema(reading.named_file(root, meta, "schema"))
    rows = _ROWS_OF[schema.kind](schema)
    rows.read(root, path)
    return Listing(
        file_names=rows.names.finish(),
        class_indices=np.frombuffer(rows.class_indices, dtype=np.int32),
        categories=schema.categories,
        columns=schema.columns,
        ignored={},
        repeated=len(rows.repeats[0]),
        labels=rows.labels(),
    )


class _Rows:
    """The rows of a list, added block by block: 60 bytes a row, where a list of names takes 300."""

    label_type: Any = str | None

    def __init__(self, schema: ImageSchema) -> None:
        self.names = listing.Packer()  # empty where the file cannot be used
        self.class_indices = array("i")
        self._schema = schema
        self._index_of: dict[str | None, int] = {
            name: index for index, name in enumerate(schema.categories)
        }
        self._problems: list[_Problem] = []
        self._unlabelled: list[_Problem] = []
        self._hashes = array("q")  # of the names, to look up the files that exist
        self._folders: set[str] = set()

    def read(self, root: Path, path: Path) -> None:
        """Read all rows.

        Raises `MalformedFileError`, `UnlabelledRowsError` for those that cannot be used.
        """
        decoder = self._decoder()
        with path.open("rb") as file:
            for block in _blocks(file, path.name):
                self._add(_decode(decoder, block, len(self._hashes), path.name))
        problems = sorted([*self._problems, *self._absent_files(root), *self._contradictions()])
        texts = [
            f"{path.name}:{problem.row + 1}: {problem.text}"
            for problem in problems or self._unlabelled
        ]
        if problems:
            rows_cannot = counted(len(problems), "row cannot", "rows cannot")
            raise MalformedFileError(f"{rows_cannot} be used:{bulleted(texts)}\n")
        if texts:
            raise listing.UnlabelledRowsError(f"{len(texts)} rows lack it:{bulleted(texts)}")

    def _decoder(self) -> "msgspec.json.Decoder[Any]":
        """Return a decoder of rows, which have an `image` and, if labelled, a `category`."""
        fields: list[tuple[str, Any, None]] = [("image", _ImageReference | None, None)]
        names = {"image": self._schema.reference}
        if self._schema.label is not None:
            fields.append(("category", self.label_type, None))
            names["category"] = self._schema.label
        try:
            return msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names))
        except ValueError as error:
            # For names with quotation marks, backslashes, or control characters.
            raise MalformedFileError(
                f"{SCHEMA} has a name that cannot be read: {error}."
            ) from error

    def _add(self, rows: Sequence[Any]) -> None:
        first = len(self._hashes)
        file_names = [row.image and row.image.file_name for row in rows]
        self._add_names(first, file_names)
        if self._schema.label is None:
            self.class_indices.extend([UNLABELLED] * len(rows))
        else:
            self._add_categories(first, file_names, rows)

    def _add_names(self, first: int, file_names: Sequence[str | None]) -> None:
        names = [name or "" for name in file_names]
        for position, name in enumerate(names):
            # Nearly all pass the first check, which takes a tenth of the time.
            is_plain = (
                name.isascii() and name[:1] not in "/." and "/." not in name and "\0" not in name
            )
            if not is_plain and not reading.is_inner_path(name):
                text = self._problem_with(file_names[position])
                self._problems.append(_Problem(first + position, 0, text))
                names[position] = ""
        self._hashes.extend(map(hash, names))
        self._folders.update({name.rpartition("/")[0] for name in names})
        self.names.extend(names)

    def _problem_with(self, file_name: str | None) -> str:
        if file_name is not None:
            return f"image {file_name!r} is outside the directory."
        return (
            f"no file_name in {self._schema.reference!r}. Images are not fetched from the network;"
            " convert the data set first."
        )

    def _add_categories(
        self, first: int, file_names: Sequence[str | None], rows: Sequence[Any]
    ) -> None:
        indices = [self._index_of.get(row.category, UNLABELLED) for row in rows]
        self.class_indices.extend(indices)
        for position, index in enumerate(indices):
            if index == UNLABELLED and file_names[position] is not None:
                self._add_unlabelled(
                    first + position, file_names[position], rows[position].category
                )

    def _add_unlabelled(self, row: int, file_name: str | None, category: str | None) -> None:
        if category is None:
            text = f"image {file_name!r} has no {self._schema.label}."
            self._unlabelled.append(_Problem(row, 1, text))
        else:
            text = f"category {category!r} is not declared in {SCHEMA}."
            self._problems.append(_Problem(row, 1, text))

    def labels(self) -> LabelKind:
        """Return what the indices stand for."""
        return ONE_PER_IMAGE

    def _label_of(self, index: int) -> str:
        """Return what an index stands for."""
        return self._schema.categories[index]

    def _absent_files(self, root: Path) -> Iterator[_Problem]:
        """Yield the rows whose file does not exist or is not a file."""
        names = self.names.finish()
        present = PresentFiles(root)
        for row in self._rows_without(self._hashes_of_files(root)):
            # These may be valid links to files, and are checked one by one.
            name = names[row]
            reason = present.problem_with(name) if name else ""
            if reason:
                yield _Problem(row, 0, f"image {name!r} {reason}.")

    def _hashes_of_files(self, root: Path) -> np.ndarray:
        """Return the sorted hashes, int64, of all regular files in the folders that rows name."""
        hashes = array("q")
        for folder in self._folders:
            before = f"{folder}/" if folder else ""
            if is_really_inside(root, root / folder):
                with suppress(OSError), os.scandir(root / folder) as entries:
                    files = (
                        entry.name for entry in entries if entry.is_file(follow_symlinks=False)
                    )
                    hashes.extend(hash(before + name) for name in files)
        ordered = np.frombuffer(hashes, dtype=np.int64)
        ordered.sort()
        return ordered

    def _rows_without(self, existing: np.ndarray) -> Iterator[int]:
        """Yield the rows whose name is not among sorted hashes of those that exist."""
        wanted = np.frombuffer(self._hashes, dtype=np.int64)
        for start in range(0, len(wanted), CHECKED_AT_ONCE):
            part = wanted[start : start + CHECKED_AT_ONCE]
            exists = np.zeros(len(part), dtype=bool)
            if len(existing):
                nearest = np.searchsorted(existing, part).clip(max=len(existing) - 1)
                exists = existing[nearest] == part
            yield from (start + np.flatnonzero(~exists)).tolist()

    @cached_property
    def repeats(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows whose file is listed before, and the first row of each: (R,), int64, both."""
        return listing.repeats_in(np.frombuffer(self._hashes, dtype=np.int64))

    def _contradictions(self) -> Iterator[_Problem]:
        """Yield the rows whose file has another category in an earlier row."""
        again, firsts = self.repeats
        indices = np.frombuffer(self.class_indices, dtype=np.int32)
        here = indices[again]
        before = indices[firsts]
        differs = (here != before) & (here != UNLABELLED) & (before != UNLABELLED)
        names = self.names.finish()
        for row, first in zip(again[differs].tolist(), firsts[differs].tolist(), strict=True):
            name = names[row]
            if name:
                category = self._label_of(int(indices[row]))
                other = self._label_of(int(indices[first]))
                text = (
                    f"image {name!r} has category {category!r} here and {other!r}"
                    f" in row {first + 1}."
                )
                yield _Problem(row, 1, text)


class _SetRows(_Rows):
    """Rows with a list of categories each, which may be empty."""

    label_type: Any = list[str] | None

    def __init__(self, schema: ImageSchema) -> None:
        super().__init__(schema)
        self._sets = LabelSets()

    def labels(self) -> LabelKind:
        return self._sets.kind(len(self._schema.categories))

    def _label_of(self, index: int) -> str:
        return text_of([self._schema.categories[member] for member in self.labels().members(index)])

    def _add_categories(
        self, first: int, file_names: Sequence[str | None], rows: Sequence[Any]
    ) -> None:
        for position, row in enumerate(rows):
            names = [] if row.category is None else row.category
            indices = [self._index_of.get(name, UNLABELLED) for name in names]
            if UNLABELLED in indices and file_names[position] is not None:
                unknown = names[indices.index(UNLABELLED)]
                self._add_unlabelled(first + position, file_names[position], unknown)
                indices = []
            if row.category is None and file_names[position] is not None:
                self._add_unlabelled(first + position, file_names[position], None)
            self.class_indices.append(self._sets.number_of(indices))


_ROWS_OF: Mapping[type[LabelKind], type[_Rows]] = {OnePerImage: _Rows, SetsPerImage: _SetRows}


def _blocks(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield whole lines, about `BLOCK_BYTES` at a time."""
    rest = b""
    while chunk := file.read(BLOCK_BYTES):
        block = rest + chunk
        end = block.rfind(b"\n") + 1
        if end == 0 and len(block) > BLOCK_BYTES:
            raise MalformedFileError(f"{name} has a line of more than {BLOCK_BYTES:,} bytes.")
        yield block[:end]
        rest = block[end:]
    yield rest


def _decode(
    decoder: "msgspec.json.Decoder[Any]", block: bytes, lines_before: int, name: str
) -> list[Any]:
    with suppress(*NOT_JSON):
        rows = decoder.decode_lines(block)
        block.decode()  # the decoder skips other columns without validating their UTF-8
        lines = block.count(b"\n") + (not block.endswith(b"\n") and bool(block))
        if len(rows) == lines and not BLANK_LINE.search(block):
            return rows
    for number, line in enumerate(block.split(b"\n"), lines_before + 1):
        try:
            decoder.decode(line)
            line.decode()
        except NOT_JSON as error:
            raise MalformedFileError(
                f"{name}:{number}: not a row of an image list: {error}."
            ) from error
    raise AssertionError("a block of lines failed to decode, but none of its lines did")
