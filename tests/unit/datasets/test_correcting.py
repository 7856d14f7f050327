"""A data set as a table of decisions says: categories, images to leave out, images that join."""

import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from tests.image_directories import open_three
from tests.painting import paint_folders

from train_pytorch_model.commands.convert import Convert
from train_pytorch_model.commands.split import Split
from train_pytorch_model.datasets.correcting import correct, open_corrections
from train_pytorch_model.datasets.one_folder import Parts, open_parts
from train_pytorch_model.datasets.split_table import Row, rows_of
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.part_names import TRAINING
from train_pytorch_model.formats.reading import sha256_of


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(["file,decision,sha256", *rows]) + "\n", encoding="utf-8")
    return path


def by_name(parts: Parts) -> dict[str, Row]:
    return {row.file_name: row for row in rows_of(parts)}


def test_decisions_change_categories_and_move_no_image(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 10, size=(8, 8))
    before = by_name(open_parts(folder, seed=1))
    in_test = next(name for name, row in before.items() if row.part == "test")
    sha256 = sha256_of(folder / "red" / "0.png")
    rows = [f"red/0.png,blue,{sha256}", "red/1.png,discarded,", "red/2.png,Not sure,"]
    path = table(tmp_path / "corrections.csv", *rows, f"{in_test},pink,", "green/3.png,pink,")
    after = by_name(open_parts(folder, seed=1, corrections=open_corrections(path)))

    assert before.keys() - after.keys() == {"red/1.png"}
    assert all(row.part == before[name].part for name, row in after.items())
    changed = {name: row.category for name, row in after.items() if row != before[name]}
    assert changed == {"red/0.png": "blue", in_test: "pink", "green/3.png": "pink"}


def test_rows_that_do_not_count_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = paint_folders(tmp_path / "photographs", 10, size=(8, 8))
    outside = shutil.copy(folder / "red" / "0.png", tmp_path / "outside.png")
    (folder / "red" / "link.png").symlink_to(outside)
    path = table(
        tmp_path / "tables.csv",
        "gone.png,blue,",
        "../outside.png,blue,",
        f"red/1.png,blue,{'0' * 64}",
    )
    shutil.move(path, tmp_path / "elsewhere.csv")
    (tmp_path / "tables").mkdir()
    path = tmp_path / "tables" / "corrections.csv"
    shutil.move(tmp_path / "elsewhere.csv", path)
    with caplog.at_level(logging.INFO):
        corrected = open_parts(folder, seed=1, corrections=open_corrections(path))
    assert by_name(corrected) == by_name(open_parts(folder, seed=1))
    text = caplog.text
    assert "names files that are not in the data set, nor beside the table:\n  'gone.png'" in text
    assert "'../outside.png'" in text
    assert "other content of these files, and does not count:\n  'red/1.png'" in text


def test_images_without_a_category_join_training(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 10, size=(8, 8))
    new = paint_folders(tmp_path / "new", 2, categories=("red",), size=(8, 8), first=50)
    before = by_name(open_parts(folder, seed=1))
    held_out = next(name for name, row in before.items() if row.part == "validation")
    shutil.copy(folder / held_out, new / "copy.png")
    shutil.copy(new / "red" / "51.png", folder / "loose.png")
    path = table(new / "corrections.csv", "red/50.png,red,", "copy.png,red,", "loose.png,pink,")
    after = by_name(open_parts(folder, seed=1, corrections=open_corrections(path)))
    added = {name: row for name, row in after.items() if name not in before}
    assert added == {
        "../new/red/50.png": Row("../new/red/50.png", "red", "training"),
        "../new/copy.png": Row("../new/copy.png", "red", "validation"),  # it is a twin of one
        "loose.png": Row("loose.png", "pink", "training"),
    }


def test_a_folder_without_categories_gets_them_from_the_table(tmp_path: Path) -> None:
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name in ("blue", "red"):
        made = paint_folders(tmp_path / name, 10, categories=(name,), size=(8, 8))
        for path in made.rglob("*.png"):
            shutil.move(path, folder / f"{name}-{path.name}")
    rows = [f"{name}-{index}.png,{name}," for name in ("blue", "red") for index in range(6)]
    path = table(folder / "corrections.csv", *rows)
    parts = open_parts(folder, seed=1, corrections=open_corrections(path))
    assert parts.training.categories == ("blue", "red")
    assert sum(map(len, parts.by_name().values())) == 12


def test_a_category_that_only_test_images_have_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = paint_folders(tmp_path / "photographs", 10, size=(8, 8))
    before = by_name(open_parts(folder, seed=1))
    held_out = next(name for name, row in before.items() if row.part == "test")
    path = table(tmp_path / "corrections.csv", f"{held_out},pink,")
    with caplog.at_level(logging.INFO):
        after = by_name(open_parts(folder, seed=1, corrections=open_corrections(path)))
    assert before.keys() - after.keys() == {held_out}
    assert "without a training image, so their images are left out:\n  'pink'" in caplog.text


def test_a_listed_directory_is_written_with_its_new_categories(tmp_path: Path) -> None:
    three = open_three(tmp_path)
    path = table(tmp_path / "corrections.csv", "image/0_0.png,new,", "image/0_2.png,new,")
    corrections = open_corrections(path)
    assert corrections
    corrected = correct(three.root, {TRAINING: three}, corrections)[TRAINING]
    assert corrected.categories == ("b", "new")
    assert [row["category"] for row in corrected.read_listed_rows()] == ["new", "b", "new"]
    assert [name for name, _ in corrected.read_rows()] == [""] * 3
    declared = corrected.read_schema()["columnAttributes"][-1]["properties"]["categories"]
    assert [category["name"] for category in declared] == ["b", "new"]


def test_split_writes_what_is_decided(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 6, size=(8, 8))
    outputs = [tmp_path / "1", tmp_path / "2"]
    rows = ["blue/0.png,red,", "blue/1.png,red,", "green/0.png,discarded,"]
    path = table(tmp_path / "corrections.csv", *rows)
    Split(input=folder, output_1=outputs[0], output_2=outputs[1], corrections=path).run()
    parts = [open_image_directory(output, "Dataset") for output in outputs]
    assert [part.categories for part in parts] == [("blue", "green", "red")] * 2
    assert np.sum([part.class_counts() for part in parts], axis=0).tolist() == [4, 5, 8]


def test_convert_writes_what_is_decided(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 3, size=(8, 8))
    path = table(tmp_path / "corrections.csv", "red/0.png,blue,", "red/1.png,discarded,")
    output = tmp_path / "images"
    Convert(input=folder, output=output, corrections=path).run()
    rows = [json.loads(line) for line in (output / "images.lst").read_text().splitlines()]
    categories = {row["image_info"]["original"]: row["category"] for row in rows}
    assert categories["red/0.png"] == "blue"
    assert "red/1.png" not in categories
    assert len(categories) == 8


@pytest.mark.parametrize("kind", ["missing", "folder", "nothing is left"])
def test_a_table_that_cannot_be_used_is_refused(kind: str, tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 2, size=(8, 8))
    path = tmp_path / "corrections.csv"
    if kind == "folder":
        path.mkdir()
    elif kind == "nothing is left":
        table(
            path,
            *(f"{name}/{i}.png,discarded," for name in ("blue", "green", "red") for i in (0, 1)),
        )
    messages = {
        "missing": "there is no such file",
        "folder": "it is a directory, not a file",
        "nothing is left": "corrections.csv leaves no image with a category for training",
    }
    with pytest.raises(InvalidDatasetError, match=messages[kind]):
        Convert(input=folder, output=tmp_path / "images", corrections=path).run()
