"""The designer's `images.lst`, millions of rows of untrusted input, with `_schema.json` and
`_samples.json`.

These describe columns, also of other tables, and show a few rows.
"""

import base64
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import msgspec
import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.formats import listing, reading
from train_pytorch_model.formats.listing import UNLABELLED, Listing
from train_pytorch_model.formats.reading import NOT_JSON, MalformedFileError, is_really_inside
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, small_jpeg

TYPE = "ImageDirectory"
SCHEMA = "_schema.json"
SAMPLES = "_samples.json"
IMAGE_COLUMN = "image"
IMAGE_REFERENCE = "image_info"
CATEGORY_COLUMN = "category"
CLASSIFICATION = "COCO_classification"
NUM_SAMPLES = 3
MAX_SAMPLE_BYTES = 64 << 10  # a larger image is downscaled: a table needs no 12 megapixels
SAMPLE_SIDE = 256
BLANK_LINE = re.compile(rb"^[ \t\r]*\n", re.MULTILINE)
BLOCK_BYTES = 2 << 20  # read at a time; also the longest line allowed
CHECKED_AT_ONCE = 1 << 16  # rows

Problem = tuple[int, int, str]  # (index of the row, order among the problems of that row, sentence)


class _Category(msgspec.Struct):
    id: int
    name: str


class _Properties(msgspec.Struct):
    image_ref: str | None = None
    annotation_type: str | None = None
    categories: list[_Category] | None = None


class _Column(msgspec.Struct):
    name: str
    properties: _Properties | None = None


class _Schema(msgspec.Struct):
    columnAttributes: list[_Column]  # noqa: N815, the designer's name


class _ImageReference(msgspec.Struct):
    file_name: str | None = None


def read_image_list(root: Path) -> Listing:
    """Read and check the rows of `images.lst`.

    Raises `MalformedFileError`, `UnlabelledRowsError`.
    """
    meta = reading.read_meta(root, TYPE)
    image_list = reading.named_file(root, meta, "image_list")
    columns = reading.read_json(reading.named_file(root, meta, "schema"), _Schema).columnAttributes
    references = [
        c.properties.image_ref for c in columns if c.properties and c.properties.image_ref
    ]
    if len(references) != 1:
        text = f"{SCHEMA} should have one image column with an image_ref and has {len(references)}."
        raise MalformedFileError(text)
    counts = Counter(column.name for column in columns)
    if twice := [repr(name) for name, count in counts.items() if count > 1]:
        raise MalformedFileError(f"{SCHEMA} has columns of the same name:{bulleted(twice)}\n")
    kinds = {c.properties.annotation_type: c for c in reversed(columns) if c.properties}
    label = kinds.get(CLASSIFICATION)
    categories: tuple[str, ...] = ()
    if label:
        declared = (label.properties and label.properties.categories) or []
        if not declared:
            raise MalformedFileError(f"{SCHEMA} declares no categories for column {label.name!r}.")
        ids = [category.id for category in declared]
        if min(ids) < 0 or len(set(ids)) < len(ids):
            raise MalformedFileError(
                f"{SCHEMA} declares category ids that are negative or not unique."
            )
        categories = tuple(each.name for each in sorted(declared, key=lambda category: category.id))
        listing.check_category_names(categories)
    if label and label.name == references[0]:
        raise MalformedFileError(
            f"{SCHEMA} has {label.name!r} for the image_ref and for the column of the categories;"
            " each"
            " needs a name of its own."
        )
    rows = _Rows(references[0], label.name if label else None, categories)
    rows.read(root, image_list)
    class_indices = np.frombuffer(rows.class_indices, dtype=np.int32)
    others = tuple(c.name for c in columns if not (c.properties and c.properties.image_ref))
    return Listing(rows.names.finish(), class_indices, categories, others, {}, len(rows.repeats[0]))


class _Rows:
    """The rows of a list, added block by block: 60 bytes a row, where a Python list of names takes
    300."""

    def __init__(self, reference: str, label: str | None, categories: Sequence[str]) -> None:
        self._reference, self._label, self._categories = reference, label, categories
        self._index_of = {name: index for index, name in enumerate(categories)}
        self.names = listing.Packer()  # empty where the file cannot be used
        self.class_indices = array("i")
        self._problems: list[Problem] = []
        self._unlabelled: list[Problem] = []
        self._hashes = array("q")  # of the names, to look up the files that exist
        self._folders: set[str] = set()

    def read(self, root: Path, path: Path) -> None:
        """Read all rows.

        Raises `MalformedFileError`, `UnlabelledRowsError` for those that cannot be used.
        """
        fields: list[tuple[str, Any, None]] = [("image", _ImageReference | None, None)]
        names = {"image": self._reference}
        if self._label is not None:
            fields.append(("category", str | None, None))
            names["category"] = self._label
        try:
            decoder = msgspec.json.Decoder(msgspec.defstruct("Row", fields, rename=names))
        except (
            ValueError
        ) as error:  # for names with quotation marks, backslashes, or control characters
            raise MalformedFileError(
                f"{SCHEMA} has a name that cannot be read: {error}."
            ) from error
        with path.open("rb") as file:
            for block in _blocks(file, path.name):
                self._add(_decode(decoder, block, len(self._hashes), path.name))
        problems = sorted([*self._problems, *self._absent_files(root), *self._contradictions()])
        texts = [
            f"{path.name}:{index + 1}: {text}" for index, _, text in problems or self._unlabelled
        ]
        if problems:
            rows_cannot = counted(len(problems), "row cannot", "rows cannot")
            raise MalformedFileError(f"{rows_cannot} be used:{bulleted(texts)}\n")
        if texts:
            raise listing.UnlabelledRowsError(f"{len(texts)} rows lack it:{bulleted(texts)}")

    def _add(self, rows: Sequence[Any]) -> None:
        first = len(self._hashes)
        given = [row.image and row.image.file_name for row in rows]
        names = [name or "" for name in given]
        for place, name in enumerate(names):
            # Nearly all pass the first check, which takes a tenth of the time.
            is_plain = (
                name.isascii() and name[:1] not in "/." and "/." not in name and "\0" not in name
            )
            if not is_plain and not reading.is_inner_path(name):
                text = f"image {name!r} is outside the directory."
                if given[place] is None:
                    text = (
                        f"no file_name in {self._reference!r}. Images are not fetched from the"
                        " network;"
                        " convert the data set first."
                    )
                self._problems.append((first + place, 0, text))
                names[place] = ""
        self._hashes.extend(map(hash, names))
        self._folders.update({name.rpartition("/")[0] for name in names})
        self.names.extend(names)
        if self._label is None:
            self.class_indices.extend([UNLABELLED] * len(rows))
            return
        found = [self._index_of.get(row.category, UNLABELLED) for row in rows]
        self.class_indices.extend(found)
        for place, index in enumerate(found):
            if index == UNLABELLED and given[place] is not None:
                if (category := rows[place].category) is None:
                    text = f"image {given[place]!r} has no {self._label}."
                    self._unlabelled.append((first + place, 1, text))
                else:
                    text = f"category {category!r} is not declared in {SCHEMA}."
                    self._problems.append((first + place, 1, text))

    def _absent_files(self, root: Path) -> Iterator[Problem]:
        """Yield the rows whose file does not exist or is not a file."""
        hashes = array("q")  # of all regular files in the folders
        for folder in self._folders:
            before = f"{folder}/" if folder else ""
            if is_really_inside(root, root / folder):
                with suppress(OSError), os.scandir(root / folder) as entries:
                    files = (
                        entry.name for entry in entries if entry.is_file(follow_symlinks=False)
                    )
                    hashes.extend(hash(before + name) for name in files)
        there = np.frombuffer(hashes, dtype=np.int64)
        there.sort()
        wanted = np.frombuffer(self._hashes, dtype=np.int64)
        names, present = self.names.finish(), PresentFiles(root)
        for start in range(0, len(wanted), CHECKED_AT_ONCE):
            part = wanted[start : start + CHECKED_AT_ONCE]
            places = np.searchsorted(there, part).clip(max=len(there) - 1)
            is_there = there[places] == part if len(there) else np.zeros(len(part), dtype=bool)
            # These may be valid links to files, and are checked one by one.
            for index in (start + np.flatnonzero(~is_there)).tolist():
                if (name := names[index]) and (reason := present.problem_with(name)):
                    yield index, 0, f"image {name!r} {reason}."

    @cached_property
    def repeats(self) -> tuple[np.ndarray, np.ndarray]:
        """(R,) and (R,), int64: of all rows read, those whose file is listed before; its first row."""
        return listing.repeats_in(np.frombuffer(self._hashes, dtype=np.int64))

    def _contradictions(self) -> Iterator[Problem]:
        """Yield the rows whose file has another category in an earlier row."""
        again, firsts = self.repeats
        found = np.frombuffer(self.class_indices, dtype=np.int32)
        here, before = found[again], found[firsts]
        differs = (here != before) & (here != UNLABELLED) & (before != UNLABELLED)
        names = self.names.finish()
        for index, first in zip(again[differs].tolist(), firsts[differs].tolist(), strict=True):
            if name := names[index]:
                category, other = self._categories[found[index]], self._categories[found[first]]
                text = f"image {name!r} has category {category!r} here and {other!r} in row {first + 1}."
                yield index, 1, text


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


class PresentFiles:
    """Which files exist: each folder is listed once, as a `stat` per file would take minutes on a
    mount."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, dict[str, bool] | str] = {}

    def problem_with(self, name: str) -> str:
        """Return why a file cannot be used, as the end of a sentence; empty if it can."""
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._list(self.root / folder)
        found = self._folders[folder]
        if isinstance(found, str):
            return found
        if file not in found:
            return "does not exist"
        if not found[file]:
            path = self.root / name
            if not is_really_inside(self.root, path):
                return "is a link that points outside the directory"
            if not path.is_file():
                return "is not a file"
        return ""

    def _list(self, path: Path) -> dict[str, bool] | str:
        """Return whether each entry of a folder is a regular file, or what is wrong with the
        folder.
        """
        if not is_really_inside(self.root, path):
            return "is in a folder that links outside the directory"
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        except OSError:
            return "does not exist"


def column(name: str, kind: str, type_name: str, is_feature: bool) -> dict[str, Any]:
    """Return one entry of `columnAttributes`."""
    element = {"typeName": type_name, "isNullable": False}
    return {"name": name, "type": kind, "isFeature": is_feature, "elementType": element}


def image_schema(categories: Sequence[str]) -> dict[str, Any]:
    """Return the schema of an image directory; without categories, that of an unlabelled one."""
    # Always image/png, even for JPEG files: readers find the image column by it.
    image = column(IMAGE_COLUMN, "Bytes", "bytes", is_feature=True) | {
        "properties": {"mime_type": "image/png", "image_ref": IMAGE_REFERENCE}
    }
    columns = [image, column("id", "Numeric", "int64", is_feature=False)]
    if categories:
        declared = [{"id": index, "name": name} for index, name in enumerate(categories)]
        columns.append(
            column(CATEGORY_COLUMN, "String", "str", is_feature=False)
            | {"properties": {"annotation_type": CLASSIFICATION, "categories": declared}}
        )
    return {"columnAttributes": columns}


def image_column(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the image column of a checked schema, and its key of the file reference."""
    columns = ((each["name"], each.get("properties") or {}) for each in content["columnAttributes"])
    return next((name, found["image_ref"]) for name, found in columns if found.get("image_ref"))


def image_samples(
    rows: Iterable[tuple[Path, Mapping[str, Any]]], name: str = IMAGE_COLUMN
) -> list[dict[str, Any]]:
    """Return the first few rows whose image can be read, each with the image as base64."""
    samples: list[dict[str, Any]] = []
    for path, row in rows:
        with suppress(OSError, UnreadableImageError):
            is_small = path.stat().st_size <= MAX_SAMPLE_BYTES
            data = (
                path.read_bytes()
                if is_small
                else small_jpeg(decode(path, SAMPLE_SIDE), SAMPLE_SIDE)
            )
            samples.append({name: base64.b64encode(data).decode(), **row})
        if len(samples) == NUM_SAMPLES:
            break
    return samples
