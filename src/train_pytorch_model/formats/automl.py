"""AutoML's training data for image classification: one JSON object per line, and the MLTable that names it.

    {"image_url": "azureml://subscriptions/…/paths/fridge/milk/1.jpg", "label": "milk", …}

An `image_url` is a path relative to the file, or a URL that ends in one: `azureml://` and `AmlDatastore://`
URLs start some levels above the file's directory, depending on where that was uploaded.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import msgspec
import numpy as np

from train_pytorch_model.formats.listing import UNLABELLED, Listing, check_category_names, natural_order
from train_pytorch_model.formats.packed import PackedNames
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import MalformedFileError, file_inside, is_inner_path, read_yaml
from train_pytorch_model.words.errors import bulleted

SUFFIX = ".jsonl"
MLTABLE = "MLTable"
MAX_LINE_BYTES = 1 << 20
MAX_LABEL_BYTES = 255  # a category may also be the name of a folder
MAX_DEPTH = 64  # path components of a URL that are tried
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")  # at least two letters: `C:` is a drive
FILE_ADDRESS = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)  # the part before the path
REPEATED = "duplicate rows"


def annotations_of(root: Path) -> Path:
    """Return the JSONL file that the `MLTable` in a directory names. Raises `MalformedFileError`."""
    paths = read_yaml(root / MLTABLE).get("paths")
    names = (
        [entry.get("file") for entry in paths if isinstance(entry, dict)] if isinstance(paths, list) else []
    )
    if len(names) != 1 or not isinstance(names[0], str) or not names[0].endswith(SUFFIX):
        raise MalformedFileError(f"{MLTABLE} should name one {SUFFIX} file under paths and names {names}.")
    return file_inside(root, names[0])


def read_annotations(path: Path) -> Listing:
    """Return the images of a JSONL file, sorted by category and name, with paths relative to its directory.

    Raises `MalformedFileError` with all rows that cannot be used.
    """
    root = path.parent
    present = PresentFiles(root)
    labels: dict[str, str | None] = {}
    problems: list[str] = []
    repeated = 0
    for number, line in _lines(path):
        try:
            row = _row(line)
            name = _resolve(root, present, row["image_url"])
            label = _label(row)
            if name in labels and labels[name] != label:
                raise _RowError(
                    f"image {name!r} has label {labels[name]!r} in another row and {label!r} here"
                )
        except _RowError as error:
            problems.append(f"{path.name}:{number}: {error}.")
            continue
        repeated += name in labels
        labels[name] = label
    unlabelled = [name for name, label in labels.items() if label is None]
    if 0 < len(unlabelled) < len(labels):
        problems += [f"image {name!r} has no label, but others do." for name in unlabelled]
    if problems:
        raise MalformedFileError(f"{len(problems)} rows of {path.name} cannot be used:{bulleted(problems)}\n")
    categories = sorted({label for label in labels.values() if label is not None}, key=natural_order)
    check_category_names(categories)
    index_of: dict[str | None, int] = {name: index for index, name in enumerate(categories)}
    names = sorted(labels, key=lambda name: (index_of.get(labels[name], UNLABELLED), natural_order(name)))
    return Listing(
        file_names=PackedNames.pack(names),
        class_indices=np.asarray([index_of.get(labels[name], UNLABELLED) for name in names], dtype=np.int32),
        categories=tuple(categories),
        columns=("id", "category") if categories else ("id",),
        ignored={REPEATED: repeated} if repeated else {},
    )


class _RowError(Exception):
    """A row cannot be used; the text is the reason, without a final period."""


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers counted from 1."""
    number = 0
    try:
        with path.open("rb") as file:
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise MalformedFileError(
                        f"{path.name}:{number}: more than {MAX_LINE_BYTES:,} bytes in a line."
                    )
                line = line.removeprefix(BOM_UTF8).strip()
                if line:
                    yield number, line
    except OSError as error:
        raise MalformedFileError(f"it cannot be read: {error.strerror}.") from error


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise _RowError(f"not a JSON object: {error}") from error
    if not isinstance(row.get("image_url"), str):
        raise _RowError('no string under "image_url"')
    return row


def _label(row: dict[str, Any]) -> str | None:
    label = row.get("label")
    if isinstance(label, list):
        raise _RowError(
            "its label is a list: multi-label data and boxes are not supported. One string is expected"
        )
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if label is not None and not isinstance(label, str):
        raise _RowError(f"its label is {label!r}; a string is expected")
    if label is not None and not 0 < len(label.encode()) <= MAX_LABEL_BYTES:
        raise _RowError(f"its label has {len(label.encode())} bytes; 1 to {MAX_LABEL_BYTES} are expected")
    return label


def _resolve(root: Path, present: PresentFiles, url: str) -> str:
    """Return the name of the file relative to `root`. Raises `_RowError`."""
    if not ADDRESS.match(url):
        return _inside(root, present, url)
    scheme = url.partition(":")[0].lower()
    if scheme == "file":
        return _inside(root, present, unquote(FILE_ADDRESS.sub("", url)))
    if scheme not in ("azureml", "amldatastore"):
        raise _RowError(
            f"image {url!r} is remote. Images are not fetched from the network: download them beside the file"
        )
    parts = url.partition("/paths/")[2].split("/") if "/paths/" in url else url.split("/")[3:]
    parts = [part for part in parts if part not in ("", ".")][-MAX_DEPTH:]
    for first in range(len(parts)):  # the longest tail of the URL that exists here
        end = "/".join(parts[first:])
        for name in dict.fromkeys((end, unquote(end))):
            if is_inner_path(name) and not present.problem_with(name):
                return name
    raise _RowError(f"image {url!r} is not below the directory of the file")


def _inside(root: Path, present: PresentFiles, name: str) -> str:
    if name.startswith("/"):
        try:
            name = Path(name).relative_to(root.absolute()).as_posix()
        except ValueError:
            raise _RowError(f"image {name!r} is outside the directory of the file") from None
    if not is_inner_path(name):
        raise _RowError(f"image {name!r} is outside the directory of the file")
    name = PurePosixPath(name).as_posix()  # one name per image, without `./` and `//`
    if reason := present.problem_with(name):
        raise _RowError(f"image {name!r} {reason}")
    return name
