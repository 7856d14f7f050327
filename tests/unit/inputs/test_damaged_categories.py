"""A category of which no image can be read is left out of all parts, and its reasons are told."""

from pathlib import Path

import pytest
from tests.painting import paint_folders

from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.inputs.damaged_categories import without_damaged_categories
from train_pytorch_model.inputs.opening import open_training_datasets


def damage(folder: Path, keep_bytes: int = 0) -> None:
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes()[:keep_bytes])


@pytest.mark.parametrize(
    ("keep_bytes", "reason"),
    [(0, "the file is empty"), (1500, "OSError: image file is truncated")],
)
def test_it_is_no_category_whether_headers_or_pixels_are_damaged(
    tmp_path: Path, keep_bytes: int, reason: str
) -> None:
    root = paint_folders(tmp_path / "data", 2)
    damage(root / "green", keep_bytes)
    images = without_damaged_categories(open_image_directory(root, "Training dataset"))
    assert images.categories == ("blue", "red")
    assert images.class_indices.tolist() == [0, 0, 1, 1]
    assert list(images.file_names) == ["blue/0.png", "blue/1.png", "red/0.png", "red/1.png"]
    (warning,) = images.warnings()
    assert f"left out:\n  'green': 2 images, such as 'green/0.png': {reason}" in warning


def test_one_readable_image_makes_a_category(tmp_path: Path) -> None:
    root = paint_folders(tmp_path / "data", 3)
    for name in ("0.png", "1.png"):
        (root / "green" / name).write_bytes(b"")
    images = open_image_directory(root, "Training dataset")
    assert without_damaged_categories(images) is images


def test_validation_only_lacks_it_if_training_has_it(tmp_path: Path) -> None:
    paint_folders(tmp_path / "train", 2)
    paint_folders(tmp_path / "val", 2)
    damage(tmp_path / "val/green")
    training, validation = open_training_datasets(tmp_path / "train", tmp_path / "val")
    assert training.categories == validation.categories == ("blue", "green", "red")
    assert validation.class_counts().tolist() == [2, 0, 2]


def test_if_only_training_lacks_it_the_reason_is_told(tmp_path: Path) -> None:
    paint_folders(tmp_path / "train", 2)
    paint_folders(tmp_path / "val", 2)
    damage(tmp_path / "train/green")
    with pytest.raises(InvalidDatasetError, match=r"(?s)Only in validation:\n  'green'.*is empty"):
        open_training_datasets(tmp_path / "train", tmp_path / "val")
