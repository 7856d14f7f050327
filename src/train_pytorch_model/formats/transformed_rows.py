"""The rows of an image directory after its images are transformed into PNG files."""

import unicodedata
from collections.abc import Iterator
from itertools import chain, count
from pathlib import PurePosixPath
from typing import Any

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import IMAGE_FOLDER, ImageDirectory
from train_pytorch_model.formats.listing import is_utf8

MAX_NAME_BYTES = 255  # of a file, on every common file system
SIZES = ("width", "height")  # of the original image


def transformed_rows(images: ImageDirectory) -> Iterator[dict[str, Any]]:
    """Yield the images' rows with new, unique file names; everything else is kept, except for sizes.

    `image/1_134.jpg` becomes `image/1_134.png`. An image whose name would be repeated or invalid is named by
    its place in the list, `image/<row>.png`.
    """
    _, reference = schema.image_column(images.read_schema())
    taken: set[int] = set()
    for place, row in zip(images.rows.tolist(), images.read_listed_rows(), strict=True):
        kept = {name: value for name, value in row[reference].items() if name not in SIZES}
        yield row | {reference: kept | {"file_name": _name_png(kept["file_name"], place, taken)}}


def _name_png(name: str, place: int, taken: set[int]) -> str:
    stem = str(PurePosixPath(name).with_suffix("")).removeprefix(f"{IMAGE_FOLDER}/")
    stems = chain([stem, f"{place}"], (f"{place}_{number}" for number in count(2)))
    return next(f"{IMAGE_FOLDER}/{stem}.png" for stem in stems if _take(stem, taken))


def _take(stem: str, taken: set[int]) -> bool:
    """Whether the name is valid and free; if so, mark it as taken."""
    *folders, file = f"{stem}.png".split("/")
    if not is_utf8(file):  # the list cannot hold undecodable bytes
        return False
    is_too_long = len(file.encode()) > MAX_NAME_BYTES
    is_in_file = any(folder.lower().endswith(".png") for folder in folders)  # maybe another image's name
    key = hash(unicodedata.normalize("NFC", stem).casefold())  # as on case-insensitive file systems
    if is_too_long or is_in_file or key in taken:
        return False
    taken.add(key)
    return True
