"""`_schema.json` and `_samples.json`: the columns of a table, and its first rows with their images.

    _schema.json     {"columnAttributes": [
                       {"name": "image", "type": "Bytes", "isFeature": true, "elementType": {…},
                        "properties": {"mime_type": "image/png", "image_ref": "image_info"}},
                       {"name": "id", …},
                       {"name": "category", "type": "String", …,
                        "properties": {"annotation_type": "COCO_classification",
                                       "categories": [{"id": 0, "name": "cat"}, …]}}]}
    _samples.json    [{"image": "…", "category": "cat", "id": 0}, …]

Where images have any number of categories, the column is called `categories` and its
`annotation_type` is `multi_label_classification`.

A sample holds its image as base64.
"""

import base64
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.formats import listing
from train_pytorch_model.formats.label_kinds import (
    CATEGORY_COLUMN,
    CLASSIFICATION,
    KIND_OF,
    ONE_PER_IMAGE,
    LabelKind,
    OnePerImage,
)
from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, small_jpeg
from train_pytorch_model.machine.library_lines import library_lines

SCHEMA = "_schema.json"
SAMPLES = "_samples.json"
IMAGE_COLUMN = "image"
IMAGE_REFERENCE = "image_info"
NUM_SAMPLES = 3
MAX_SAMPLE_BYTES = 64 << 10  # a larger image is downscaled: a table needs no 12 megapixels
SAMPLE_SIDE = 256


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

    @property
    def image_ref(self) -> str | None:
        return self.properties.image_ref if self.properties else None

    @property
    def is_label(self) -> bool:
        return self.annotation_type in KIND_OF

    @property
    def annotation_type(self) -> str:
        return (self.properties.annotation_type if self.properties else None) or ""


class _Schema(msgspec.Struct):
    columnAttributes: list[_Column]  # noqa: N815, the designer's name


@dataclass(frozen=True)
class ImageSchema:
    """What a schema says of a list of images."""

    reference: str  # the key of a row that holds the file reference
    label: str | None  # the column of the categories; None if the images are unlabelled
    categories: tuple[str, ...]  # in the order of their ids
    columns: tuple[str, ...]  # all but the image column
    kind: type[LabelKind] = OnePerImage  # of the labels: a category, or a list of them


def read_image_schema(path: Path) -> ImageSchema:
    """Read and check a schema. Raises `MalformedFileError`."""
    columns = read_json(path, _Schema).columnAttributes
    reference = _image_reference(columns)
    _check_names(columns)
    label = next((column for column in columns if column.is_label), None)
    categories = _declared_categories(label) if label else ()
    if label and label.name == reference:
        raise MalformedFileError(
            f"{SCHEMA} has {label.name!r} for the image_ref and for the column of the categories;"
            " each needs a name of its own."
        )
    others = tuple(column.name for column in columns if not column.image_ref)
    if label is None:
        return ImageSchema(reference, None, (), others)
    return ImageSchema(reference, label.name, categories, others, KIND_OF[label.annotation_type])


def _image_reference(columns: Sequence[_Column]) -> str:
    references = [column.image_ref for column in columns if column.image_ref]
    if len(references) != 1:
        raise MalformedFileError(
            f"{SCHEMA} should have one image column with an image_ref and has {len(references)}."
        )
    return references[0]


def _check_names(columns: Sequence[_Column]) -> None:
    counts = Counter(column.name for column in columns)
    repeated = [repr(name) for name, count in counts.items() if count > 1]
    if repeated:
        raise MalformedFileError(f"{SCHEMA} has columns of the same name:{bulleted(repeated)}\n")


def _declared_categories(label: _Column) -> tuple[str, ...]:
    """Return the names of the categories in the order of their ids."""
    declared = label.properties.categories if label.properties else None
    if not declared:
        raise MalformedFileError(f"{SCHEMA} declares no categories for column {label.name!r}.")
    ids = [category.id for category in declared]
    if min(ids) < 0 or len(set(ids)) < len(ids):
        raise MalformedFileError(f"{SCHEMA} declares category ids that are negative or not unique.")
    in_order = sorted(declared, key=lambda category: category.id)
    names = tuple(category.name for category in in_order)
    listing.check_category_names(names)
    return names


def column_attributes(name: str, kind: str, type_name: str, is_feature: bool) -> dict[str, Any]:
    """Return one entry of `columnAttributes`."""
    element = {"typeName": type_name, "isNullable": False}
    return {"name": name, "type": kind, "isFeature": is_feature, "elementType": element}


def image_schema(categories: Sequence[str], labels: LabelKind = ONE_PER_IMAGE) -> dict[str, Any]:
    """Return the schema of an image directory; without categories, that of an unlabelled one."""
    # Always image/png, even for JPEG files: readers find the image column by it.
    image = column_attributes(IMAGE_COLUMN, "Bytes", "bytes", is_feature=True) | {
        "properties": {"mime_type": "image/png", "image_ref": IMAGE_REFERENCE}
    }
    columns = [image, column_attributes("id", "Numeric", "int64", is_feature=False)]
    if categories:
        columns.append(_category_column(categories, labels))
    return {"columnAttributes": columns}


def _category_column(categories: Sequence[str], labels: LabelKind) -> dict[str, Any]:
    """Return the column of the categories: of one, or of any number of them."""
    declared = [{"id": index, "name": category} for index, category in enumerate(categories)]
    properties = {"annotation_type": labels.annotation_type, "categories": declared}
    return column_attributes(labels.column, "String", "str", is_feature=False) | {
        "properties": properties
    }


def with_categories(content: Mapping[str, Any], categories: Sequence[str]) -> dict[str, Any]:
    """Return a checked schema that declares these categories instead of its own, if any."""
    label = label_column(content) or CATEGORY_COLUMN
    others = [column for column in content["columnAttributes"] if column["name"] != label]
    column = _category_column(categories, ONE_PER_IMAGE) | {"name": label}
    return {**content, "columnAttributes": [*others, column]}


def label_column(content: Mapping[str, Any]) -> str:
    """Return the name of the column of the categories of a checked schema; empty without one."""
    for column in content["columnAttributes"]:
        properties = column.get("properties") or {}
        if properties.get("annotation_type") == CLASSIFICATION:
            return str(column["name"])
    return ""


def image_column(content: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of the image column of a checked schema, and the key of its reference."""
    for column in content["columnAttributes"]:
        properties = column.get("properties") or {}
        if properties.get("image_ref"):
            return column["name"], properties["image_ref"]
    raise AssertionError("a checked schema has an image column")


def image_samples(
    rows: Iterable[tuple[Path, Mapping[str, Any]]], name: str = IMAGE_COLUMN
) -> list[dict[str, Any]]:
    """Return the first few rows whose image can be read, each with the image as base64."""
    samples: list[dict[str, Any]] = []
    for path, row in rows:
        with suppress(OSError, UnreadableImageError), library_lines:
            is_small = path.stat().st_size <= MAX_SAMPLE_BYTES
            if is_small:
                data = path.read_bytes()
            else:
                data = small_jpeg(decode(path, SAMPLE_SIDE), SAMPLE_SIDE)
            samples.append({name: base64.b64encode(data).decode(), **row})
        if len(samples) == NUM_SAMPLES:
            break
    return samples
