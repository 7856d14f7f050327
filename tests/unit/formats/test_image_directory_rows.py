"""Image directories that are open: selections, rows and fingerprints."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import PORT, open_three, write_three
from tests.painting import paint_folders

from train_pytorch_model.formats.image_directory import image_row, open_image_directory
from train_pytorch_model.formats.schema import image_schema


def test_a_selection_keeps_names_classes_and_rows_together(tmp_path: Path) -> None:
    selected = open_three(tmp_path).select(np.asarray([1, 2]))
    assert list(selected.file_names) == ["image/1_1.png", "image/0_2.png"]
    assert selected.class_indices.tolist() == [1, 0]
    assert [row for _, row in selected.read_rows()] == [
        {"id": 1, "category": "b"},
        {"id": 2, "category": "große"},
    ]
    assert [row for _, row in selected.select(np.asarray([1])).read_rows()] == [
        {"id": 2, "category": "große"}
    ]
    assert [row for _, row in selected.select(np.asarray([], dtype=np.int64)).read_rows()] == []


def test_a_selection_of_plain_folders_keeps_its_ids(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    rows = [row for _, row in directory.select(np.asarray([1, 4])).read_rows()]
    assert rows == [{"category": "blue", "id": 1}, {"category": "red", "id": 4}]


def test_columns_missing_from_a_row_are_none(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().replace(', "id": 1', "")
    (root / "images.lst").write_text(lines)
    rows = [row for _, row in open_image_directory(root, PORT).read_rows()]
    assert [row["id"] for row in rows] == [0, None, 2]


def test_class_indices_follow_a_new_order_of_the_categories(tmp_path: Path) -> None:
    moved = open_three(tmp_path).with_categories(("b", "große"))
    assert moved.categories == ("b", "große")
    assert moved.class_indices.tolist() == [1, 0, 1]
    assert [row["category"] for _, row in moved.read_rows()] == ["große", "b", "große"]


def test_the_fingerprint_depends_on_the_files_their_order_and_the_categories(
    tmp_path: Path,
) -> None:
    directory = open_three(tmp_path)
    again = open_image_directory(directory.root, "Validation dataset")
    assert directory.fingerprint() == again.fingerprint()
    others = {
        directory.fingerprint(),
        directory.select(np.asarray([0, 1])).fingerprint(),
        directory.select(np.asarray([1, 0, 2])).fingerprint(),
        directory.with_categories(("b", "große")).fingerprint(),
    }
    assert len(others) == 4


def test_names_and_classes_of_equal_lengths_have_different_fingerprints(tmp_path: Path) -> None:
    found = set()
    for root, names in enumerate(
        (("x/a", "x/b", "y/c"), ("x/a", "x/d", "y/c"), ("x/a", "y/b", "y/c"))
    ):
        for name in names:
            path = tmp_path / str(root) / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        directory = open_image_directory(tmp_path / str(root), PORT)
        found.add(directory.fingerprint())
        found.add(directory.with_categories(("y", "x")).fingerprint())
        found.add(replace(directory, categories=("x", "z")).fingerprint())
        found.add(replace(directory, class_indices=directory.class_indices[::-1]).fingerprint())
    assert len(found) == 12


def test_the_boundary_between_names_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    for root, names in {"one": ("ab.png", "c.png"), "two": ("a", "b.pngc.png")}.items():
        (tmp_path / root).mkdir()
        for name in names:
            (tmp_path / root / name).touch()
    (tmp_path / "two/a").rename(tmp_path / "two/a.png")
    one, two = (open_image_directory(tmp_path / root, PORT) for root in ("one", "two"))
    assert one.fingerprint() != two.fingerprint()


def test_file_name_indices_out_of_range_are_refused(tmp_path: Path) -> None:
    names = open_three(tmp_path).file_names
    for index in (-1, 3):
        with pytest.raises(IndexError):
            names[index]


def test_whole_rows_and_the_schema_are_read_unchanged(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    text = (
        (root / "images.lst").read_text().replace('"id": 1', '"note": {"x": [1.5, null]}, "id": 1')
    )
    (root / "images.lst").write_text(text)
    directory = open_image_directory(root, PORT)
    assert [json.dumps(row) for row in directory.read_listed_rows()] == text.splitlines()
    assert list(directory.select(np.asarray([1])).read_listed_rows()) == [
        {
            "image_info": {"file_name": "image/1_1.png"},
            "category": "b",
            "note": {"x": [1.5, None]},
            "id": 1,
        }
    ]
    assert directory.read_schema() == json.loads((root / "_schema.json").read_text())


def test_rows_and_schema_of_plain_folders_match_those_of_convert(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", per_category=2), PORT)
    assert list(directory.read_listed_rows())[3] == image_row(
        "image/1_3.png", 3, "green", "green/1.png"
    )
    assert directory.read_schema() == image_schema(["blue", "green", "red"])
    assert list(directory.select(np.asarray([3])).read_listed_rows()) == [
        image_row("image/1_3.png", 3, "green", "green/1.png")
    ]


def test_original_names_are_read_from_the_list_and_empty_if_unknown(tmp_path: Path) -> None:
    root = write_three(tmp_path / "data")
    lines = (root / "images.lst").read_text().splitlines()
    references = [{"original": "dogs/a \u56f3.jpg"}, {"original": 5}, {}]
    rows = [json.loads(line) for line in lines]
    for row, reference in zip(rows, references, strict=True):
        row["image_info"] |= reference
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    directory = open_image_directory(root, PORT)
    assert directory.original_names(np.asarray([2, 0, 1, 0])) == [
        "",
        "dogs/a \u56f3.jpg",
        "",
        "dogs/a \u56f3.jpg",
    ]
    assert directory.select(np.asarray([0, 2])).original_names(np.asarray([1, 0])) == [
        "",
        "dogs/a \u56f3.jpg",
    ]
    rows[1]["image_info"]["original"] = "long" * 100_000
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert directory.original_names(np.asarray([1])) == ["long" * 1024]
    (root / "images.lst").write_text("".join(json.dumps(row) + "\n" for row in rows[::-1]))
    assert directory.original_names(np.asarray([0, 1, 2])) == [
        "",
        "long" * 1024,
        "",
    ]  # the rows moved
    (root / "images.lst").write_text("no row any more\n" * 3)
    assert directory.original_names(np.asarray([0, 1])) == ["", ""]
    (root / "images.lst").write_text("[1]\n" * 3)
    assert directory.original_names(np.asarray([0])) == [""]
    (root / "images.lst").unlink()
    assert directory.original_names(np.asarray([0])) == [""]
    (root / "_schema.json").write_text('{"columnAttributes": []}')
    assert directory.original_names(np.asarray([0])) == [""]
    assert directory.original_names(np.asarray([], dtype=np.int64)) == []


def test_original_names_that_are_not_utf8_are_escaped() -> None:
    assert image_row("image/0_0.png", 0, "a", "a/\udcff \u56f3.png")["image_info"] == {
        "file_name": "image/0_0.png",
        "original": "a/\\udcff \u56f3.png",
    }
