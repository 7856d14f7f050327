"""AutoML's list of images, JSON lines that an `MLTable` names.

    {"image_url": "azureml://subscriptions/…/paths/milk/1.jpg", "label": "milk", …}

An `image_url` is a path relative to the file, or a URL that ends in one: `azureml://` and
`AmlDatastore://` URLs start some levels above the file's directory, depending on where that was
uploaded.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import msgspec

from train_pytorch_model.formats import reading
from train_pytorch_model.formats.labelled_rows import LabelledRows, RowError
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.present_files import PresentFiles
from train_pytorch_model.formats.reading import NOT_JSON, MalformedFileError, read_lines

MLTABLE = "MLTable"
ANNOTATIONS_SUFFIX = ".jsonl"
MAX_DEPTH = 64  # path components of a URL that are tried
FILE_ADDRESS = re.compile(r"^file:(//[^/]*)?", re.IGNORECASE)  # the part before the path


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
    rows = LabelledRows(path.name)
    for number, line in read_lines(path):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
            if not isinstance(row.get("image_url"), str):
                raise RowError('no string under "image_url"')
            rows.add(_resolve(present, row["image_url"]), row.get("label"))
        except RowError as error:
            rows.problems.append(f"{path.name}:{number}: {error}.")
        except NOT_JSON as error:
            rows.problems.append(f"{path.name}:{number}: not a JSON object: {error}.")
    return rows.listing()


def _resolve(present: PresentFiles, url: str) -> str:
    """Return the name of the file relative to the folder of the images. Raises `RowError`."""
    scheme = reading.scheme_of(url)
    if scheme == "":
        return _resolve_path(present, url)
    if scheme == "file":
        return _resolve_path(present, unquote(FILE_ADDRESS.sub("", url)))
    if scheme in reading.AZURE_SCHEMES:
        return _resolve_end(present, url)
    raise RowError(
        f"image {url!r} is remote. Images are not fetched from the network: download them"
        " beside the file"
    )


def _resolve_path(present: PresentFiles, path: str) -> str:
    name = path
    root = present.root.absolute()
    if path.startswith("/") and Path(path).is_relative_to(root):
        name = Path(path).relative_to(root).as_posix()
    if not reading.is_inner_path(name):
        raise RowError(f"image {name!r} is outside the directory of the file")
    name = PurePosixPath(name).as_posix()  # one name per image, without `./` and `//`
    reason = present.problem_with(name)
    if reason:
        raise RowError(f"image {name!r} {reason}")
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
    raise RowError(f"image {url!r} is not below the directory of the file")
