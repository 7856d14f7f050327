"""The designer's image list: how it is read, and every way its meta file and its schema can be
invalid.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.image_lists import ID, IMAGE, META, ROUND_AND_SQUARE, category_column, row, write

from train_pytorch_model.formats import image_list
from train_pytorch_model.formats.image_list import read_image_list
from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.formats.reading import MalformedFileError


def test_rows_keep_their_order_and_the_declared_ids_are_the_class_indices(tmp_path: Path) -> None:
    rows = [
        row("image/b.png", "square", id=7),
        row("image/a.png", "round"),
        row("image/b.png", "square"),
    ]
    listing = read_image_list(write(tmp_path, rows))
    assert list(listing.file_names) == ["image/b.png", "image/a.png", "image/b.png"]
    assert listing.class_indices.tolist() == [1, 0, 1]
    assert listing.categories == ("round", "square")
    assert listing.columns == ("id", "category")
    assert listing.ignored == {}


def test_rows_that_repeat_a_file_are_counted(tmp_path: Path) -> None:
    files = ["a.png", "b.png", "a.png", "a.png", "b.png"]
    listing = read_image_list(write(tmp_path, [row(f"image/{name}", "round") for name in files]))
    assert (len(listing.file_names), listing.repeated) == (5, 3)


def test_class_indices_follow_the_order_of_the_ids_without_gaps(tmp_path: Path) -> None:
    columns = [IMAGE, category_column((90, "a"), (0, "z"), (7, "m"))]
    names = ("a.png", "b.png", "c.png")
    rows = [row(f"image/{name}", category) for name, category in zip(names, "amz", strict=True)]
    root = write(tmp_path, rows, columns)
    (root / "image/c.png").touch()
    listing = read_image_list(root)
    assert listing.categories == ("z", "m", "a")
    assert listing.class_indices.tolist() == [2, 1, 0]


def test_column_names_come_from_the_schema(tmp_path: Path) -> None:
    columns = [
        {"name": "picture", "properties": {"image_ref": "where"}},
        category_column((0, "round"), (1, "square"), name="shape"),
    ]
    rows = [
        {"where": {"file_name": "image/a.png", "width": 3}, "shape": "square", "category": "other"}
    ]
    listing = read_image_list(write(tmp_path, rows, columns))
    assert list(listing.file_names) == ["image/a.png"]
    assert listing.class_indices.tolist() == [1]
    assert listing.columns == ("shape",)


def test_without_a_category_column_images_are_unlabelled(tmp_path: Path) -> None:
    detection = {"name": "boxes", "properties": {"annotation_type": "COCO_object_detection"}}
    rows = [row("image/a.png", "round", boxes=[{"bbox": [1, 2, 3, 4]}])]
    listing = read_image_list(write(tmp_path, rows, [IMAGE, ID, detection]))
    assert listing.categories == ()
    assert listing.class_indices.tolist() == [UNLABELLED]
    assert listing.columns == ("id", "boxes")


def test_category_names_may_use_any_script(tmp_path: Path) -> None:
    names = ["猫", "großer Hund", "🙂", "a,b\n'c\""]
    columns = [IMAGE, category_column(*enumerate(names))]
    root = write(
        tmp_path, [row(f"image/{place}.png", name) for place, name in enumerate(names)], columns
    )
    for place in range(4):
        (root / f"image/{place}.png").touch()
    listing = read_image_list(root)
    assert listing.categories == tuple(names)
    assert listing.class_indices.tolist() == [0, 1, 2, 3]


def test_file_names_may_use_any_script(tmp_path: Path) -> None:
    root = write(tmp_path, [row("image/grün 1.png", "round")])
    (root / "image/grün 1.png").touch()
    assert list(read_image_list(root).file_names) == ["image/grün 1.png"]


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_the_last_line_may_lack_a_newline(tmp_path: Path, end: bytes) -> None:
    line = json.dumps(row("image/a.png", "round")).encode()
    listing = read_image_list(write(tmp_path, line + b"\r\n" + line + end))
    assert len(listing.file_names) == 2


@pytest.mark.parametrize("block", [75, 76, 100, 149, 150, 151, 1000])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_rows_may_span_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, end: bytes
) -> None:
    monkeypatch.setattr(image_list, "BLOCK_BYTES", block)
    line = json.dumps(row("image/a.png", "round", id=1)).encode()
    assert len(line) == 74
    root = write(tmp_path, b"\n".join([line] * 21) + end)
    assert len(read_image_list(root).file_names) == 21


def test_line_numbers_continue_across_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_list, "BLOCK_BYTES", 100)
    rows = [row("image/a.png", "round")] * 20 + [row("image/none.png", "round")]
    with pytest.raises(
        MalformedFileError, match=r"images.lst:21: image 'image/none.png' does not exist\."
    ):
        read_image_list(write(tmp_path, rows))


# ── Errors in the meta file and the schema ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"type": "DataFrameDirectory"},
            "says type 'DataFrameDirectory', expected 'ImageDirectory'.",
        ),
        ({"type": None}, "_meta.yaml says type None, expected 'ImageDirectory'."),
        ({"image_list": None}, "_meta.yaml does not name its image_list."),
        ({"image_list": 3}, "_meta.yaml does not name its image_list."),
        ({"schema": None}, "_meta.yaml does not name its schema."),
        ({"image_list": "other.lst"}, "other.lst is missing."),
        ({"image_list": "../images.lst"}, "'../images.lst' is not a path inside the directory."),
        ({"schema": "/etc/hostname"}, "'/etc/hostname' is not a path inside the directory."),
        ({"schema": "image"}, "image is missing."),
    ],
)
def test_a_meta_without_valid_references_is_refused(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, [], meta=META | change))
    assert str(raised.value).endswith(message)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "_schema.json should have one image column with an image_ref and has 0."),
        (
            [ID, ROUND_AND_SQUARE],
            "_schema.json should have one image column with an image_ref and has 0.",
        ),
        ([IMAGE, IMAGE], "_schema.json should have one image column with an image_ref and has 2."),
        ([IMAGE, category_column()], "_schema.json declares no categories for column 'category'."),
        (
            [IMAGE, {"name": "kind", "properties": {"annotation_type": "COCO_classification"}}],
            "_schema.json declares no categories for column 'kind'.",
        ),
        (
            [IMAGE, category_column((-1, "a"), (0, "b"))],
            "_schema.json declares category ids that are negative or not unique.",
        ),
        (
            [IMAGE, category_column((1, "a"), (1, "b"))],
            "_schema.json declares category ids that are negative or not unique.",
        ),
        ([IMAGE, category_column((0, "a"), (1, "a"))], "categories of the same name:\n  a"),
        (
            [IMAGE, category_column((0, "caf\u00e9"), (1, "cafe\u0301"), (2, "b"))],
            "categories of the same name:\n  caf\u00e9",
        ),
        ([IMAGE, ID, ID], "_schema.json has columns of the same name:\n  'id'"),
        (
            [IMAGE, category_column((0, "a"), name="image_info")],
            "_schema.json has 'image_info' for the image_ref and for the column of the categories;",
        ),
        (
            [IMAGE, category_column((0, "a"), name='the "kind"')],
            "_schema.json has a name that cannot be read: Renamed field names must not contain",
        ),
        ([{"no": "name"}], "_schema.json is not as expected: Object missing required field `name`"),
    ],
)
def test_a_schema_without_usable_columns_is_refused(
    tmp_path: Path, columns: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, [], columns))
    assert str(raised.value).startswith(message)


def test_a_schema_that_is_not_an_object_is_refused(tmp_path: Path) -> None:
    root = write(tmp_path, [])
    (root / "_schema.json").write_text("[]")
    with pytest.raises(
        MalformedFileError, match=r"_schema.json is not as expected: Expected `object`"
    ):
        read_image_list(root)
