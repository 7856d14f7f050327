"""Directories with an image list, as the designer writes them."""

import json
from pathlib import Path
from typing import Any

META = {
    "type": "ImageDirectory",
    "extension": {},
    "image_list": "images.lst",
    "samples": "_samples.json",
    "schema": "_schema.json",
}
IMAGE = {"name": "image", "properties": {"mime_type": "image/png", "image_ref": "image_info"}}
ID = {"name": "id", "type": "Numeric"}


def category_column(*categories: tuple[int, str], name: str = "category") -> dict[str, Any]:
    declared = [{"id": number, "name": category} for number, category in categories]
    properties = {"annotation_type": "COCO_classification", "categories": declared}
    return {"name": name, "properties": properties}


ROUND_AND_SQUARE = category_column((0, "round"), (1, "square"))


def row(file_name: str, category: str | None = None, **more: object) -> dict[str, Any]:
    label = {} if category is None else {"category": category}
    return {"image_info": {"file_name": file_name}, **label, **more}


def write(
    root: Path,
    rows: list[dict[str, Any]] | bytes,
    columns: list[dict[str, Any]] | None = None,
    meta: dict[str, Any] | None = None,
) -> Path:
    """Write a directory with the files `image/a.png` and `image/b.png`, and these rows."""
    (root / "image").mkdir(parents=True)
    for name in ("a.png", "b.png"):
        (root / "image" / name).touch()
    text = (
        rows if isinstance(rows, bytes) else b"".join(json.dumps(r).encode() + b"\n" for r in rows)
    )
    (root / "images.lst").write_bytes(text)
    schema = {"columnAttributes": [IMAGE, ID, ROUND_AND_SQUARE] if columns is None else columns}
    (root / "_schema.json").write_text(json.dumps(schema))
    (root / "_meta.yaml").write_text(json.dumps(META if meta is None else meta))
    return root
