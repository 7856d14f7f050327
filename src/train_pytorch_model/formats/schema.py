"""`_schema.json` and `_samples.json`: how the designer describes columns and shows a few rows."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, small_jpeg

SCHEMA = "_schema.json"
SAMPLES = "_samples.json"

IMAGE_COLUMN = "image"
IMAGE_REFERENCE = "image_info"
CATEGORY_COLUMN = "category"
CLASSIFICATION = "COCO_classification"
NUM_SAMPLES = 3
MAX_SAMPLE_BYTES = 64 << 10  # a larger image is downscaled: a table needs no 12 megapixels
SAMPLE_SIDE = 256


def column(name: str, kind: str, type_name: str, is_feature: bool) -> dict[str, Any]:
    """Return one entry of `columnAttributes`."""
    return {
        "name": name,
        "type": kind,
        "isFeature": is_feature,
        "elementType": {"typeName": type_name, "isNullable": False},
    }


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
            data = path.read_bytes() if is_small else small_jpeg(decode(path, SAMPLE_SIDE), SAMPLE_SIDE)
            samples.append({name: base64.b64encode(data).decode(), **row})
        if len(samples) == NUM_SAMPLES:
            break
    return samples
