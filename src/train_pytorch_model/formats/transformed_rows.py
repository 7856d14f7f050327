"""The rows of an image directory after its images are transformed into PNG files."""

import unicodedata
from collections.abc import Iterator, Mapping
from itertools import chain, count
from pathlib import PurePosixPath
from typing import Any

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.image_directory import IMAGE_FOLDER, ImageDirectory

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
        yield row | {reference: kept | {"file_name": _png_name(kept["file_name"], place, taken)}}


def spatial_annotations(schema_content: Mapping[str, Any]) -> list[str]:
    """The columns with spatial annotations, such as bounding boxes."""
    return [
        name
        for name, found in _properties(schema_content)
        if found.get("annotation_type") not in (None, schema.CLASSIFICATION)
    ]


def _properties(schema_content: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The names of the columns with their properties, which may be empty."""
    return [(column["name"], column.get("properties") or {}) for column in schema_content["columnAttributes"]]


def _png_name(name: str, place: int, taken: set[int]) -> str:
    stem = str(PurePosixPath(name).with_suffix("")).removeprefix(f"{IMAGE_FOLDER}/")
    stems = chain([stem, f"{place}"], (f"{place}_{number}" for number in count(2)))
    return next(f"{IMAGE_FOLDER}/{stem}.png" for stem in stems if _take(stem, taken))


def _take(stem: str, taken: set[int]) -> bool:
    """Whether the name is valid and free; if so, mark it as taken."""
    *folders, file = f"{stem}.png".split("/")
    try:
        is_too_long = len(file.encode()) > MAX_NAME_BYTES
    except UnicodeEncodeError:  # the list cannot hold undecodable bytes
        return False
    is_in_file = any(folder.lower().endswith(".png") for folder in folders)  # maybe another image's name
    key = hash(unicodedata.normalize("NFC", stem).casefold())  # as on case-insensitive file systems
    if is_too_long or is_in_file or key in taken:
        return False
    taken.add(key)
    return True
