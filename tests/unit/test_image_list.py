"""The designer's image list: how it is read, and every way it can be invalid."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from train_pytorch_model.formats import image_list
from train_pytorch_model.formats.image_list import read_image_list
from train_pytorch_model.formats.listing import UNLABELLED, UnlabelledRowsError
from train_pytorch_model.formats.reading import MalformedFileError

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
    text = rows if isinstance(rows, bytes) else b"".join(json.dumps(r).encode() + b"\n" for r in rows)
    (root / "images.lst").write_bytes(text)
    schema = {"columnAttributes": [IMAGE, ID, ROUND_AND_SQUARE] if columns is None else columns}
    (root / "_schema.json").write_text(json.dumps(schema))
    (root / "_meta.yaml").write_text(json.dumps(META if meta is None else meta))
    return root


def test_rows_keep_their_order_and_the_declared_ids_are_the_class_indices(tmp_path: Path) -> None:
    rows = [row("image/b.png", "square", id=7), row("image/a.png", "round"), row("image/b.png", "square")]
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
    rows = [{"where": {"file_name": "image/a.png", "width": 3}, "shape": "square", "category": "other"}]
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
    root = write(tmp_path, [row(f"image/{place}.png", name) for place, name in enumerate(names)], columns)
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


def test_line_numbers_continue_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_list, "BLOCK_BYTES", 100)
    rows = [row("image/a.png", "round")] * 20 + [row("image/none.png", "round")]
    with pytest.raises(MalformedFileError, match=r"images.lst:21: image 'image/none.png' does not exist\."):
        read_image_list(write(tmp_path, rows))


# ── Errors in the meta file and the schema ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "DataFrameDirectory"}, "says type 'DataFrameDirectory', expected 'ImageDirectory'."),
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
        ([ID, ROUND_AND_SQUARE], "_schema.json should have one image column with an image_ref and has 0."),
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
    with pytest.raises(MalformedFileError, match=r"_schema.json is not as expected: Expected `object`"):
        read_image_list(root)


# ── Errors in the rows ───────────────────────────────────────────────────────────────────────────

GOOD = json.dumps(row("image/a.png", "round")).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"", "Input data was truncated.", id="a blank line"),
        pytest.param(b"  ", "Input data was truncated.", id="a line of spaces"),
        pytest.param(b"{", "Input data was truncated.", id="a truncated row"),
        pytest.param(b"nonsense", "JSON is malformed: invalid character", id="not JSON"),
        pytest.param(b"[]", "Expected `object`, got `array`.", id="a list"),
        pytest.param(b'{"category": 3}', "Expected `str | null`, got `int` - at `$.category`", id="a number"),
        pytest.param(b'{"image_info": "a.png"}', "Expected `object | null`, got `str`", id="no reference"),
        pytest.param(b'{"image_info": {"file_name": 1}}', "Expected `str | null`, got `int`", id="no name"),
        pytest.param(b'{"image_info": {"file_name": "\\ud800"}}', "", id="half a surrogate pair"),
        pytest.param(b'{"image_info": {"file_name": "\xff"}}', "", id="not UTF-8"),
        pytest.param(
            GOOD[:-1] + b', "other": "\xff"}', "'utf-8' codec can't decode", id="not UTF-8, unused field"
        ),
        pytest.param(b'{"other": ' + b"[" * 100_000, "", id="deep nesting"),
        pytest.param(GOOD + b" " + GOOD, "JSON is malformed", id="two rows on one line"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line_number(tmp_path: Path, line: bytes, reason: str) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, GOOD + b"\n" + GOOD + b"\n" + line + b"\n" + GOOD + b"\n"))
    assert str(raised.value).startswith(f"images.lst:3: not a row of an image list: {reason}")


def test_two_rows_on_one_line_do_not_make_up_for_a_blank_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"images.lst:1: not a row of an image list"):
        read_image_list(write(tmp_path, GOOD + b" " + GOOD + b"\n \n" + GOOD + b"\n"))


def test_a_row_split_over_two_lines_is_reported_with_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"images.lst:2: not a row of an image list"):
        read_image_list(write(tmp_path, GOOD + b"\n" + GOOD.replace(b", ", b",\n")))


def test_an_endless_line_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_list, "BLOCK_BYTES", 1000)
    line = b'{"image_info": {"file_name": "' + b"a" * 1_000_000
    with pytest.raises(MalformedFileError, match=r"^images.lst has a line of more than 1,000 bytes\.$"):
        read_image_list(write(tmp_path, line))


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a.png", "image/../../a.png", "", ".", "image/..", "a\0b"]
)
def test_a_file_name_outside_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, [row(name, "round")]))
    assert str(raised.value) == (
        f"1 row cannot be used:\n  images.lst:1: image {name!r} is outside the directory.\n"
    )


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("image/none.png", "does not exist"),
        ("none/a.png", "does not exist"),
        ("image", "is not a file"),
        ("image/", "does not exist"),
        ("image/a.png/b.png", "does not exist"),
        ("image/out.png", "is a link that points outside the directory"),
        ("image/dangling.png", "is not a file"),
        ("image/circle.png", "is not a file"),
        ("image/folder.png", "is not a file"),
        ("image/fifo.png", "is not a file"),
        ("outside/secret.png", "is in a folder that links outside the directory"),
        ("a" * 5000, "does not exist"),
        ("a" * 5000 + "/b.png", "does not exist"),
    ],
)
def test_an_unusable_file_is_reported_with_the_reason(tmp_path: Path, name: str, reason: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/secret.png").touch()
    root = write(tmp_path / "root", [row(name, "round")])
    (root / "image/out.png").symlink_to(tmp_path / "other/secret.png")
    (root / "image/dangling.png").symlink_to("nowhere.png")
    (root / "image/circle.png").symlink_to("circle.png")
    (root / "image/folder.png").symlink_to(".")
    (root / "outside").symlink_to(tmp_path / "other")
    os.mkfifo(root / "image/fifo.png")
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(root)
    assert str(raised.value) == f"1 row cannot be used:\n  images.lst:1: image {name!r} {reason}.\n"


def test_links_inside_the_directory_are_followed(tmp_path: Path) -> None:
    root = write(tmp_path, [row("image/link.png", "round"), row("also/a.png", "square")])
    (root / "image/link.png").symlink_to("a.png")
    (root / "also").symlink_to("image")
    assert list(read_image_list(root).file_names) == ["image/link.png", "also/a.png"]


@pytest.mark.parametrize(
    "reference", [{"coco_url": "https://example.com/a.png"}, {"file_name": None}, None, {}]
)
def test_an_image_given_only_by_url_is_not_fetched(tmp_path: Path, reference: dict[str, Any] | None) -> None:
    with pytest.raises(
        MalformedFileError,
        match=r"images.lst:1: no file_name in 'image_info'. Images are not fetched from the network; convert",
    ):
        read_image_list(write(tmp_path, [{"image_info": reference, "category": "round"}]))


def test_an_undeclared_category_is_reported(tmp_path: Path) -> None:
    with pytest.raises(
        MalformedFileError, match=r"images.lst:2: category 'star' is not declared in _schema.json\."
    ):
        read_image_list(write(tmp_path, [row("image/a.png", "round"), row("image/a.png", "star")]))


def test_a_file_with_two_categories_is_reported(tmp_path: Path) -> None:
    rows = [
        row("image/a.png", "round"),
        row("image/b.png", "square"),
        row("image/a.png", "square"),
        row("image/a.png", "round"),
        row("../a.png", "round"),
        row("../b.png", "square"),  # rows outside the directory are not checked further
    ]
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, rows))
    assert str(raised.value) == (
        "3 rows cannot be used:"
        "\n  images.lst:3: image 'image/a.png' has category 'square' here and 'round' in row 1."
        "\n  images.lst:5: image '../a.png' is outside the directory."
        "\n  images.lst:6: image '../b.png' is outside the directory.\n"
    )


def test_rows_without_a_category_are_unlabelled(tmp_path: Path) -> None:
    rows = [row("image/a.png"), row("image/b.png", "round"), {**row("image/b.png"), "category": None}]
    with pytest.raises(UnlabelledRowsError) as raised:
        read_image_list(write(tmp_path, rows))
    assert str(raised.value) == (
        "2 rows lack it:"
        "\n  images.lst:1: image 'image/a.png' has no category."
        "\n  images.lst:3: image 'image/b.png' has no category."
    )


def test_ten_invalid_rows_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    rows = [row("image/a.png", "star") for _ in range(13)]
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, rows))
    lines = str(raised.value).splitlines()
    assert lines[0] == "13 rows cannot be used:"
    assert [line.split(":")[1] for line in lines[1:11]] == [str(number) for number in range(1, 11)]
    assert lines[11:] == ["  and 3 more"]
