"""What the evaluation at the end of a training would refuse is known before it starts."""

from pathlib import Path

import pytest
from tests.painting import paint_folders

from train_pytorch_model.errors import InvalidDatasetError, NotLabeledDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.inputs.scoring import DATASET, check_test


@pytest.fixture
def training(tmp_path: Path) -> ImageDirectory:
    return open_image_directory(paint_folders(tmp_path / "train", 1), "Training dataset")


def test_a_category_that_training_lacks_is_named(training: ImageDirectory, tmp_path: Path) -> None:
    paint_folders(tmp_path / "test", 1)
    (tmp_path / "test/red").rename(tmp_path / "test/crimson")
    test = open_image_directory(tmp_path / "test", DATASET)
    with pytest.raises(InvalidDatasetError, match=r"training has none of .*\n  'crimson'"):
        check_test(training, test)


def test_a_category_that_is_written_in_another_way_is_told(
    training: ImageDirectory, tmp_path: Path
) -> None:
    paint_folders(tmp_path / "test", 1)
    (tmp_path / "test/red").rename(tmp_path / "test/Red ")
    test = open_image_directory(tmp_path / "test", DATASET)
    with pytest.raises(InvalidDatasetError, match="another way: 'Red ' is 'red' there"):
        check_test(training, test)


def test_a_category_that_only_the_test_lacks_is_fine(
    training: ImageDirectory, tmp_path: Path
) -> None:
    test = paint_folders(tmp_path / "test", 1, ("red", "green"))
    check_test(training, open_image_directory(test, DATASET))


def test_images_that_cannot_be_read_are_listed(training: ImageDirectory, tmp_path: Path) -> None:
    test = paint_folders(tmp_path / "test", 1)
    (test / "red/0.png").write_bytes(b"broken")
    with pytest.raises(InvalidDatasetError, match=r"category 'red'(.|\n)*'red/0.png'"):
        check_test(training, open_image_directory(test, DATASET))


def test_images_without_categories_are_refused(training: ImageDirectory, tmp_path: Path) -> None:
    test = open_image_directory(tmp_path / "train/red", DATASET)
    with pytest.raises(NotLabeledDatasetError, match="Evaluation needs a category"):
        check_test(training, test)
