"""AutoML's training data for image classification: one JSON object per line, and the MLTable that names it.

    {"image_url": "azureml://subscriptions/…/paths/fridge/milk/1.jpg", "label": "milk", …}

An `image_url` is a path relative to the file, or a URL that ends in one: `azureml://` and `AmlDatastore://`
URLs start some levels above the file's directory, depending on where that was uploaded.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import msgspec

from train_pytorch_model.formats.labelled_rows import LabelledRows, RowError, checked_label
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.missing_path import ADDRESS
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import (
    MalformedFileError,
    file_inside,
    is_inner_path,
    read_lines,
    read_yaml,
)

SUFFIX = ".jsonl"
MLTABLE = "MLTable"
MAX_DEPTH = 64  # path components of a URL that are tried
FILE_ADDRESS = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)  # the part before the path


def annotations_of(root: Path) -> Path:
    """Return the JSONL file that the `MLTable` in a directory names. Raises `MalformedFileError`."""
    paths = read_yaml(root / MLTABLE).get("paths")
    names = (
        [entry.get("file") for entry in paths if isinstance(entry, dict)] if isinstance(paths, list) else []
    )
    if len(names) != 1 or not isinstance(names[0], str) or not names[0].endswith(SUFFIX):
        raise MalformedFileError(f"{MLTABLE} should name one {SUFFIX} file under paths and names {names}.")
    return file_inside(root, names[0])


def read_annotations(path: Path, images: Path | None = None) -> Listing:
    """Return the images of a JSONL file, by category and name, with paths relative to the folder `images`.

    By default, that is the file's own. Raises `MalformedFileError` with all rows that cannot be used.
    """
    root = path.parent if images is None else images
    present = PresentFiles(root)
    rows = LabelledRows(path.name)
    for number, line in read_lines(path):
        try:
            row = _row(line)
            rows.add(_resolve(root, present, row["image_url"]), checked_label(row.get("label")))
        except RowError as error:
            rows.problems.append(f"{path.name}:{number}: {error}.")
    return rows.listing()


def _row(line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise RowError(f"not a JSON object: {error}") from error
    if not isinstance(row.get("image_url"), str):
        raise RowError('no string under "image_url"')
    return row


def _resolve(root: Path, present: PresentFiles, url: str) -> str:
    """Return the name of the file relative to `root`. Raises `RowError`."""
    if not ADDRESS.match(url):
        return _inside(root, present, url)
    scheme = url.partition(":")[0].lower()
    if scheme == "file":
        return _inside(root, present, unquote(FILE_ADDRESS.sub("", url)))
    if scheme not in ("azureml", "amldatastore"):
        raise RowError(
            f"image {url!r} is remote. Images are not fetched from the network: download them beside the file"
        )
    parts = url.partition("/paths/")[2].split("/") if "/paths/" in url else url.split("/")[3:]
    parts = [part for part in parts if part not in ("", ".")][-MAX_DEPTH:]
    for first in range(len(parts)):  # the longest tail of the URL that exists here
        end = "/".join(parts[first:])
        for name in dict.fromkeys((end, unquote(end))):
            if is_inner_path(name) and not present.problem_with(name):
                return name
    raise RowError(f"image {url!r} is not below the directory of the file")


def _inside(root: Path, present: PresentFiles, name: str) -> str:
    if name.startswith("/"):
        try:
            name = Path(name).relative_to(root.absolute()).as_posix()
        except ValueError:
            raise RowError(f"image {name!r} is outside the directory of the file") from None
    if not is_inner_path(name):
        raise RowError(f"image {name!r} is outside the directory of the file")
    name = PurePosixPath(name).as_posix()  # one name per image, without `./` and `//`
    if reason := present.problem_with(name):
        raise RowError(f"image {name!r} {reason}")
    return name
