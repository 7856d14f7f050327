"""What is said about unusual inputs before training or evaluating begins."""

from pathlib import Path
from shutil import copy

import numpy as np
import pytest
from tests.model_directories import HALF, model_of, open_painted, write_model
from tests.painting import paint, paint_folders

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.trained_directory import write_manifest
from train_pytorch_model.inputs.advice import learning_warnings, naming_warnings
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.inputs.scoring import open_evaluation_inputs
from train_pytorch_model.quality import identical_files


def test_unusual_data_is_warned_about(tmp_path: Path) -> None:
    for first, name in enumerate(("training", "validation")):
        paint_folders(tmp_path / name, 2, ("blue", "red"), first=10 * first)
        (tmp_path / name / "empty").mkdir()
        (tmp_path / name / "NA").mkdir()
    paint("blue", 2).save(tmp_path / "training/NA/1.png")
    (tmp_path / "training/notes.txt").touch()
    empty, ignored, renamed, few, other_empty, without = open_painted(tmp_path).warnings
    training, validation = (
        f'{p.title()} dataset "{tmp_path / p}"' for p in ("training", "validation")
    )
    assert empty == f"{training}: folders without an image are no categories:\n  'empty'"
    assert ignored == f"{training}: skipped: files of another kind (.txt): 1."
    assert renamed == (
        "the designer's Score Image Model takes these category names for numbers or missing values:"
        " NA"
    )
    assert few.startswith("Training images per category: 2 on average, few to train from")
    assert other_empty == f"{validation}: folders without an image are no categories:\n  'empty'"
    assert without == f"{validation} has no image of category\n  'NA'"


def test_a_category_that_is_called_like_the_answer_for_strange_images_is_told() -> None:
    (warning,) = naming_warnings(["cat", "unknown"])
    assert warning.startswith("There is a category called 'unknown', which is also the answer for")
    assert not list(naming_warnings(["cat", "unknowns"]))


def test_validating_on_training_images_is_a_warning(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    images, copied, other = (paint_folders(tmp_path / name, 4, ("blue", "red")) for name in "abc")
    (copied / "red/3.png").write_bytes((copied / "red/3.png").read_bytes() + b"0")
    for file in other.glob("*/*"):
        file.write_bytes(file.read_bytes() + b"0")  # other images of the same names

    def overlap_warnings(validation: Path) -> list[str]:
        warnings = open_training_inputs(model, images, validation).warnings
        return [warning for warning in warnings if "memorizes its training images" in warning]

    (same,) = overlap_warnings(tmp_path / "b/../a")
    assert same.startswith("Training and validation dataset are the same directory: ")
    (alike,) = overlap_warnings(copied)
    assert alike.startswith("7 of 8 validation images are also among the training images: ")
    assert overlap_warnings(other) == []


def test_large_data_sets_are_sampled_for_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identical_files, "MAX_COMPARED", 3)
    images, copied = (paint_folders(tmp_path / name, 4, ("blue", "red")) for name in "ab")
    warnings = open_training_inputs(write_model(tmp_path / "model"), images, copied).warnings
    assert any(
        warning.startswith("At least 3 of 8 validation images are also among")
        for warning in warnings
    )


def test_identical_files_in_two_categories_are_a_warning(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    images, other = (
        paint_folders(tmp_path / name, 4, ("blue", "red"), first=10 * ord(name)) for name in "ab"
    )
    copy(images / "blue/970.png", images / "red/again.png")
    copy(images / "red/971.png", other / "blue/980.png")
    warnings = open_training_inputs(model, images, other).warnings
    command = f"`python -m train_pytorch_model convert --input {images} --merge-copies"
    start = f"2 images have an identical file in another category. If both are right: {command}"
    assert any(warning.startswith(start) for warning in warnings)
    assert any(
        warning.startswith("1 of 8 validation images are also among") for warning in warnings
    )


def test_more_validation_than_training_images_are_a_warning(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    few, many = (paint_folders(tmp_path / name, count) for name, count in (("few", 2), ("many", 3)))
    said = "More images to validate on (9) than to train on (6): are --training-dataset and"
    for training, validation, warns in ((few, many, True), (many, few, False)):
        warnings = open_training_inputs(model, training, validation).warnings
        assert any(warning.startswith(said) for warning in warnings) is warns


@pytest.mark.parametrize("is_pretrained", [False, True])
def test_freezing_a_random_backbone_is_a_warning(tmp_path: Path, is_pretrained: bool) -> None:
    recipe = Recipe(freeze_backbone=True, mean=HALF, std=HALF)
    model = write_model(tmp_path / "model", recipe, is_pretrained)
    training, validation = (
        paint_folders(tmp_path / name, 2, first=10 * ord(name)) for name in "ab"
    )
    warnings = open_training_inputs(model, training, validation).warnings
    said = "Only the last layer is trained, and the weights before it are random."
    assert [warning.startswith(said) for warning in warnings] == ([] if is_pretrained else [True])


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ("training_dataset", "These images have the names of the model's training images. "),
        (
            "validation_dataset",
            "These images have the names of the validation images that chose the model's epoch. ",
        ),
        ("another", ""),
    ],
)
def test_evaluating_on_training_or_validation_images_is_a_warning(
    tmp_path: Path, dataset: str, said: str
) -> None:
    images = paint_folders(tmp_path / "images", 2)
    recipe = Recipe(mean=HALF, std=HALF)
    model = write_model(tmp_path / "model", recipe, categories=("blue", "green", "red"))
    write_manifest(model, {dataset: open_image_directory(images, "Dataset").fingerprint()})
    (model / "_meta.yaml").touch()
    warnings = open_evaluation_inputs(model, images).warnings
    assert [warning.startswith(said) for warning in warnings] == ([True] if said else [])


@pytest.mark.parametrize(
    ("is_pretrained", "trained", "per_category", "warns"),
    [
        pytest.param(False, False, 99, True, id="from scratch"),
        pytest.param(False, False, 100, False, id="enough small images"),
        pytest.param(True, False, 1, False, id="pretrained"),
        pytest.param(False, True, 1, False, id="trained before"),
    ],
)
def test_few_images_for_training_from_scratch_are_a_warning(
    tmp_path: Path, is_pretrained: bool, trained: bool, per_category: int, warns: bool
) -> None:
    names = ("blue", "red")
    model = write_model(
        tmp_path / "model", Recipe(mean=HALF, std=HALF), is_pretrained, names * trained
    )
    paint_folders(tmp_path / "training", per_category, names, size=(8, 8))
    paint_folders(tmp_path / "validation", 1, names, first=1000, size=(8, 8))
    warning = (
        f"Training images per category: {per_category} on average, few to train from scratch."
        " Pretrained"
        " weights need far fewer: `init-model --pretrained`, or `--weights-file`."
    )
    inputs = open_training_inputs(model, tmp_path / "training", tmp_path / "validation")
    assert inputs.warnings == ((warning,) if warns else ())


def test_imbalanced_categories_are_a_warning(tmp_path: Path) -> None:
    paint_folders(tmp_path / "training", 30, ("blue",))
    paint_folders(tmp_path / "training", 3, ("green", "red"))
    warnings = open_painted(tmp_path).warnings
    assert warnings[0] == (
        "The largest category has 10 times as many training images as the smallest."
        " `init-model --balance-classes` compensates for that."
    )


def test_imbalanced_categories_are_no_warning_if_training_balances_them(tmp_path: Path) -> None:
    model = model_of(tmp_path, Recipe(balance_classes=True), is_pretrained=True)
    assert list(learning_warnings(np.array([100, 1]), model, (224, 224))) == []


@pytest.mark.parametrize(
    ("count", "side", "is_few"),
    [(499, 224, True), (500, 224, False), (126, 33, True), (126, 32, False), (99, 28, True)],
)
def test_training_small_images_from_scratch_needs_fewer(
    count: int, side: int, is_few: bool, tmp_path: Path
) -> None:
    warnings = list(
        learning_warnings(np.array([count, count]), model_of(tmp_path, Recipe()), (side, side))
    )
    assert ["few to train from scratch" in warning for warning in warnings] == [True] * is_few


@pytest.mark.parametrize(
    ("counts", "times"),
    [
        ([10, 1, 5], "10 times"),
        ([9, 1, 5], ""),
        ([5000, 0, 5], "1,000 times"),
        ([5, 0, 0], ""),
        ([0, 0], ""),
    ],
)
def test_categories_are_imbalanced_from_a_ratio_of_ten(
    tmp_path: Path, counts: list[int], times: str
) -> None:
    for name, recipe in (("plain", Recipe()), ("balanced", Recipe(balance_classes=True))):
        model = model_of(tmp_path / name, recipe)
        said = " ".join(learning_warnings(np.array(counts), model, (224, 224)))
        assert (f" {times} as many training images" in said) is bool(times and name == "plain")
        assert ("as many training images" in said) is bool(times and name == "plain")
