"""The rows of transformed images, each with a file name of its own."""

import unicodedata
from collections.abc import Iterator
from itertools import count
from pathlib import PurePosixPath
from typing import Any

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import IMAGE_FOLDER, ImageDirectory
from train_pytorch_model.formats.listing import is_utf8

MAX_NAME_BYTES = 255  # of a file, on every common file system
SIZES = ("width", "height")  # of the original image


def transformed_rows(images: ImageDirectory) -> Iterator[dict[str, Any]]:
    """Yield the rows without sizes, of `image/1_134.png`, as the original is called.

    If that is another image's name or invalid, it is `image/<row>.png`.
    """
    _, reference = schema.image_column(images.read_schema())
    used_names: set[int] = set()
    for number, row in zip(images.rows.tolist(), images.read_listed_rows(), strict=True):
        entry = {name: value for name, value in row[reference].items() if name not in SIZES}
        for stem in _stems(entry["file_name"], number):
            name = _hash_of(stem)
            if _is_valid(stem) and name not in used_names:
                break
        used_names.add(name)
        entry["file_name"] = f"{IMAGE_FOLDER}/{stem}.png"
        yield row | {reference: entry}


def _stems(file_name: str, row: int) -> Iterator[str]:
    """Yield names below the image folder, without a suffix: the original's comes first."""
    yield str(PurePosixPath(file_name).with_suffix("")).removeprefix(f"{IMAGE_FOLDER}/")
    yield f"{row}"
    for number in count(2):
        yield f"{row}_{number}"


def _is_valid(stem: str) -> bool:
    *folders, file = f"{stem}.png".split("/")
    # The list cannot hold undecodable bytes.
    if not is_utf8(file) or len(file.encode()) > MAX_NAME_BYTES:
        return False
    # A folder with a file's name may be another image's name.
    return not any(folder.lower().endswith(".png") for folder in folders)


def _hash_of(stem: str) -> int:
    """Return a hash of what case-insensitive file systems compare, smaller than the name."""
    return hash(unicodedata.normalize("NFC", stem).casefold())
