"""Every way in which a row of an image list can be invalid."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.image_lists import row, write

from train_pytorch_model.formats import image_list
from train_pytorch_model.formats.image_list import read_image_list
from train_pytorch_model.formats.listing import UnlabelledRowsError
from train_pytorch_model.formats.reading import MalformedFileError

GOOD = json.dumps(row("image/a.png", "round")).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        pytest.param(b"", "Input data was truncated.", id="a blank line"),
        pytest.param(b"  ", "Input data was truncated.", id="a line of spaces"),
        pytest.param(b"{", "Input data was truncated.", id="a truncated row"),
        pytest.param(b"nonsense", "JSON is malformed: invalid character", id="not JSON"),
        pytest.param(b"[]", "Expected `object`, got `array`.", id="a list"),
        pytest.param(
            b'{"category": 3}', "Expected `str | null`, got `int` - at `$.category`", id="a number"
        ),
        pytest.param(
            b'{"image_info": "a.png"}', "Expected `object | null`, got `str`", id="no reference"
        ),
        pytest.param(
            b'{"image_info": {"file_name": 1}}', "Expected `str | null`, got `int`", id="no name"
        ),
        pytest.param(b'{"image_info": {"file_name": "\\ud800"}}', "", id="half a surrogate pair"),
        pytest.param(b'{"image_info": {"file_name": "\xff"}}', "", id="not UTF-8"),
        pytest.param(
            GOOD[:-1] + b', "other": "\xff"}',
            "'utf-8' codec can't decode",
            id="not UTF-8, unused field",
        ),
        pytest.param(b'{"other": ' + b"[" * 100_000, "", id="deep nesting"),
        pytest.param(GOOD + b" " + GOOD, "JSON is malformed", id="two rows on one line"),
    ],
)
def test_an_invalid_row_is_reported_with_its_line_number(
    tmp_path: Path, line: bytes, reason: str
) -> None:
    with pytest.raises(MalformedFileError) as raised:
        read_image_list(write(tmp_path, GOOD + b"\n" + GOOD + b"\n" + line + b"\n" + GOOD + b"\n"))
    assert str(raised.value).startswith(f"images.lst:3: not a row of an image list: {reason}")


def test_two_rows_on_one_line_do_not_make_up_for_a_blank_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"images.lst:1: not a row of an image list"):
        read_image_list(write(tmp_path, GOOD + b" " + GOOD + b"\n \n" + GOOD + b"\n"))


def test_a_row_split_over_two_lines_is_reported_with_its_first_line(tmp_path: Path) -> None:
    with pytest.raises(MalformedFileError, match=r"images.lst:2: not a row of an image list"):
        read_image_list(write(tmp_path, GOOD + b"\n" + GOOD.replace(b", ", b",\n")))


def test_an_endless_line_is_refused_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_list, "BLOCK_BYTES", 1000)
    line = b'{"image_info": {"file_name": "' + b"a" * 1_000_000
    with pytest.raises(
        MalformedFileError, match=r"^images.lst has a line of more than 1,000 bytes\.$"
    ):
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
def test_an_unusable_file_is_reported_with_the_reason(
    tmp_path: Path, name: str, reason: str
) -> None:
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
def test_an_image_given_only_by_url_is_not_fetched(
    tmp_path: Path, reference: dict[str, Any] | None
) -> None:
    with pytest.raises(
        MalformedFileError,
        match=r"images.lst:1: no file_name in 'image_info'. Images are not fetched from the"
        r" network; convert",
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
    rows = [
        row("image/a.png"),
        row("image/b.png", "round"),
        {**row("image/b.png"), "category": None},
    ]
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
