"""One folder → three parts: split here or as found, by folders or by a table, without copies."""

import shutil
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.model_directories import HALF, write_model
from tests.painting import paint, paint_folders

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.datasets.one_folder import Parts, open_parts
from train_pytorch_model.datasets.split_table import rows_of, write_split
from train_pytorch_model.errors import InvalidDatasetError, NotLabeledDatasetError
from train_pytorch_model.formats.image_directory import images_of
from train_pytorch_model.formats.listing import Listing, Packer
from train_pytorch_model.inputs.scoring import open_evaluation_inputs
from train_pytorch_model.inputs.unreadable_images import UnreadableImage


def sizes(parts: Parts) -> list[int]:
    return [len(part) for part in parts.by_name().values()]


def names(parts: Parts) -> list[set[str]]:
    return [
        {str(part.root / name) for name in part.file_names} for part in parts.by_name().values()
    ]


def test_a_folder_is_split_by_category_the_same_way_for_a_seed(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 50, size=(4, 4))
    parts = open_parts(folder, seed=1)
    assert sizes(parts) == [120, 15, 15]
    assert parts.test.class_counts().tolist() == [5, 5, 5]
    training, validation, test = names(parts)
    assert len(training | validation | test) == 150
    assert names(open_parts(folder, seed=1)) == [training, validation, test]
    assert names(open_parts(folder, seed=2)) != [training, validation, test]


def test_small_categories_leave_more_for_the_test(tmp_path: Path) -> None:
    assert sizes(open_parts(paint_folders(tmp_path / "few", 20, size=(4, 4)), seed=1)) == [
        36,
        12,
        12,
    ]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (("train", "val", "test"), [15, 6, 9]),
        (("Training", "valid", "Testing"), [15, 6, 9]),
        (("train", "validation"), [12, 6, 3]),
        (("train", "test"), [12, 3, 9]),
    ],
)
def test_parts_that_are_there_are_kept(
    tmp_path: Path, found: tuple[str, ...], expected: list[int]
) -> None:
    per_category = {"tr": 5, "va": 2, "te": 3}
    for name in found:
        paint_folders(tmp_path / name, per_category[name[:2].lower()], size=(4, 4))
    parts = open_parts(tmp_path, seed=1)
    assert sizes(parts) == expected
    assert len(set().union(*names(parts))) == sum(expected)


def test_a_table_may_give_the_categories(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path / "photographs", 10, size=(4, 4))
    flat = tmp_path / "flat"
    flat.mkdir()
    rows = ["file,label"]
    for path in sorted(folder.glob("*/*")):
        shutil.copy(path, flat / f"{path.parent.name}{path.name}")
        rows.append(f"{path.parent.name}{path.name},{path.parent.name}")
    (flat / "labels.csv").write_text("\n".join([*rows, "gone,red"]))
    parts = open_parts(flat, seed=1)
    assert [len(part.warnings()) for part in parts.by_name().values()] == [1, 0, 0]
    assert parts.training.categories == ("blue", "green", "red")
    assert sizes(parts) == [18, 6, 6]
    recipe = Recipe(image_size=32, mean=HALF, std=HALF)
    model = write_model(tmp_path / "model", recipe, categories=parts.training.categories)
    (model / "_meta.yaml").touch()
    assert open_evaluation_inputs(model, flat).images.class_counts().tolist() == [10, 10, 10]


def test_images_without_categories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotLabeledDatasetError, match=r"labels\.csv"):
        open_parts(paint_folders(tmp_path / "photographs", 5) / "red", seed=1)
    (tmp_path / "photographs/red/labels.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(InvalidDatasetError, match=r"which column of labels.csv has the categories"):
        open_parts(tmp_path / "photographs/red", seed=1)


@pytest.mark.parametrize("part", ["val", "test"])
def test_a_part_without_categories_is_left_out_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    paint_folders(tmp_path / "train", 10, size=(4, 4))
    paint_folders(tmp_path / "more", 7, ("red",), size=(4, 4))
    (tmp_path / "more" / "red").rename(tmp_path / part)
    parts = open_parts(tmp_path, seed=1)
    assert sizes(parts) == [18, 6, 6]
    assert f"{tmp_path / part}: 7 images without a category" in caplog.text


def test_a_part_without_an_image_is_left_out_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paint_folders(tmp_path / "train", 10, size=(4, 4))
    paint_folders(tmp_path / "val", 2, size=(4, 4))
    (tmp_path / "test/red").mkdir(parents=True)
    assert sizes(open_parts(tmp_path, seed=1)) == [24, 6, 6]
    assert f"{tmp_path / 'test'}: it has no image. Images of the training" in caplog.text


def test_what_is_beside_the_parts_is_told(tmp_path: Path) -> None:
    for number, name in enumerate(("train", "val", "valid", "test", "unsorted/deep")):
        paint_folders(tmp_path / name, 1 + number, size=(4, 4))
    paint("red", 0).save(tmp_path / "loose.png")
    parts = open_parts(tmp_path, seed=1)
    assert sizes(parts) == [3, 9, 12]
    assert (
        "taken are 'train' for training, 'valid' for validation, 'test' for test. These are not"
        " used:\n  'unsorted': 15 images\n  'val': 6 images\n  beside the folders: 1 image\n"
    ) in "".join(parts.training.warnings())


def test_parts_in_a_folder_in_a_folder_are_found(tmp_path: Path) -> None:
    for name in ("train", "val", "test"):
        paint_folders(tmp_path / "dataset/photos" / name, 2, size=(4, 4))
    parts = open_parts(tmp_path, seed=1)
    assert [part.root.name for part in parts.by_name().values()] == ["train", "val", "test"]
    assert [part.root.parent for part in parts.by_name().values()] == [
        tmp_path / "dataset/photos"
    ] * 3


def test_images_that_look_alike_are_split_if_the_user_says_so(tmp_path: Path) -> None:
    folder = paint_folders(tmp_path, 4, ("red", "blue"), size=(1, 1))
    for path in folder.glob("*/*"):
        Image.new("RGB", (4, 4)).save(path)
    with pytest.raises(InvalidDatasetError, match=r"look alike.*--group-by none` splits them"):
        open_parts(folder, seed=1)
    assert sum(sizes(open_parts(folder, seed=1, group_by="none"))) == 8


def test_a_folder_of_many_twins_is_split_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = paint_folders(tmp_path, 4, ("red", "blue"), size=(4, 4))
    for index in range(3):
        paint("red", 0).save(folder / f"red/{index}.png")
        paint("red", 0).save(folder / f"blue/{index}.png")
    open_parts(folder, seed=1)
    assert "5 of 8 images look like another one and stay with it in one part" in caplog.text


def test_the_split_is_written_down(tmp_path: Path) -> None:
    for name, count in (("train", 2), ("val", 1), ("test", 1)):
        paint_folders(tmp_path / name, count, ("red", "blue"), size=(4, 4))
    write_split(tmp_path / "split.csv", open_parts(tmp_path, seed=1))
    header, *rows = (tmp_path / "split.csv").read_text().splitlines()
    assert header == "file_name,category,part"
    assert len(rows) == 8
    assert "train/blue/1.png,blue,training" in rows
    assert "test/red/0.png,red,test" in rows


def test_a_split_of_many_images_is_not_held_in_memory(tmp_path: Path) -> None:
    names = Packer(f"a/{index}.jpg" for index in range(20_000)).finish()
    listing = Listing(names, np.zeros(len(names), np.int32), ("a",), ("id", "category"), {})
    parts = Parts(
        *(images_of(listing, tmp_path / name, "Dataset") for name in ("train", "val", "test"))
    )
    tracemalloc.start()
    write_split(tmp_path / "split.csv", parts)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * 20_000  # bytes; a list of all rows takes 150 for each
    assert len((tmp_path / "split.csv").read_text().splitlines()) == 1 + 60_000


def test_images_stay_in_the_parts_of_an_earlier_split_and_new_ones_are_split(
    tmp_path: Path,
) -> None:
    paint_folders(tmp_path, 10, ("red", "blue"), size=(4, 4))
    earlier = {row.file_name: row.part for row in rows_of(open_parts(tmp_path, seed=1))}
    paint_folders(tmp_path, 10, ("green",), size=(4, 4))
    for index in range(20, 30):
        paint("red", index, (4, 4)).save(tmp_path / f"red/{index}.png")
    parts = open_parts(tmp_path, seed=2, earlier=earlier)
    now = {row.file_name: row.part for row in rows_of(parts)}
    assert now.keys() > earlier.keys()
    assert {name: now[name] for name in earlier} == earlier
    new = [part for name, part in now.items() if name not in earlier]
    assert sorted((part, new.count(part)) for part in set(new)) == [
        ("test", 4),
        ("training", 12),
        ("validation", 4),
    ]


def test_images_that_cannot_be_read_are_not_split_but_listed(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "photographs", 6)
    (root / "red/0.png").write_bytes(b"")
    left_out: list[UnreadableImage] = []
    assert sum(sizes(open_parts(root, seed=1, left_out=left_out))) == 17
    assert [image.file_name for image in left_out] == ["red/0.png"]
