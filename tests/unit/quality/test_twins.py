"""Twins of a run: which pairs are listed, and in which order."""

import csv
import io
from pathlib import Path

import numpy as np
from PIL import Image
from tests.painting import paint_scene

from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.quality.identical_files import find_identical
from train_pytorch_model.quality.perceptual_hash import perceptual_hash
from train_pytorch_model.quality.twins import TwinRow, find_twins

MIRROR = Image.Transpose.FLIP_LEFT_RIGHT
FLAT = Image.new("RGB", (32, 32), (9, 9, 9))


def write(root: Path, images: dict[str, Image.Image]) -> ImageDirectory:
    for name, image in images.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        image.save(root / name)
    return open_image_directory(root, f"{root.name.title()} dataset")


def twins_of(
    training: ImageDirectory, validation: ImageDirectory
) -> tuple[list[TwinRow], np.ndarray]:
    paths = [part.path(index) for part in (training, validation) for index in range(len(part))]
    hashes = np.stack(
        [perceptual_hash(np.asarray(Image.open(path).convert("RGB"))) for path in paths]
    )
    return find_twins(training, validation, find_identical(training, validation).pairs, hashes)


def test_pairs_of_known_images_are_left_out(tmp_path: Path) -> None:
    scenes = [paint_scene(index) for index in range(3)]
    known = write(tmp_path / "training", {"a/1.png": scenes[0], "b/1.png": scenes[0]})
    images = write(tmp_path / "test", {"a/2.png": scenes[0], "a/3.png": scenes[1]})
    paths = [part.path(index) for part in (known, images) for index in range(2)]
    hashes = np.stack(
        [perceptual_hash(np.asarray(Image.open(path).convert("RGB"))) for path in paths]
    )
    identical = find_identical(known, images).pairs
    (row,), is_alike = find_twins(known, images, identical, hashes, num_known=2)
    assert (row.file_name, row.other_port, row.other_file_name) == (
        "a/1.png",
        "Test dataset",
        "a/2.png",
    )
    assert is_alike.tolist() == [True, False]


def test_pairs_are_listed_with_contradictions_and_leaks_first(tmp_path: Path) -> None:
    first, second, third, *others = (paint_scene(index) for index in range(20))
    distinct = {f"cat/other_{index}.png": image for index, image in enumerate(others)}
    training = write(
        tmp_path / "training",
        distinct
        | {"cat/1.png": first, "dog/2.png": second, "dog/again.png": second, "cat/flat.png": FLAT},
    )
    validation = write(
        tmp_path / "validation",
        {
            "cat/2.jpg": second,
            "cat/3.png": third,
            "cat/flat.png": FLAT,
            "dog/4.png": others[0].transpose(MIRROR),
        },
    )
    rows, is_seen = twins_of(training, validation)
    table = list(csv.DictReader(io.StringIO(csv_text(table_of(TwinRow, rows)))))
    assert [(row["file_name"], row["other_file_name"], row["kind"]) for row in table] == [
        ("cat/other_0.png", "dog/4.png", "mirrored"),
        ("dog/2.png", "cat/2.jpg", "similar"),
        ("cat/flat.png", "cat/flat.png", "identical"),
        ("dog/2.png", "dog/again.png", "identical"),
    ]
    assert [row["category"] != row["other_category"] for row in table] == [True, True, False, False]
    assert {row["port"] for row in table} == {"Training dataset"}
    assert [row["other_port"] for row in table] == [*["Validation dataset"] * 3, "Training dataset"]
    assert is_seen.tolist() == [True, False, True, True]


def test_a_copy_of_a_validation_image_that_looks_like_a_training_image_does_so_too(
    tmp_path: Path,
) -> None:
    image, *others = (paint_scene(index) for index in range(12))
    training = write(
        tmp_path / "training",
        {f"cat/{index}.png": image for index, image in enumerate([image, *others])},
    )
    near = image.resize((48, 32))
    validation = write(
        tmp_path / "validation",
        {"cat/1.png": near, "cat/2.png": near, "cat/3.png": paint_scene(77)},
    )
    assert twins_of(training, validation)[1].tolist() == [True, True, False]
