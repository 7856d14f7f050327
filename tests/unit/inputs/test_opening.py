"""The inputs of a command, a model and its datasets, checked against each other."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.image_directories import write_image_directory
from tests.model_directories import HALF, open_painted
from tests.painting import paint, paint_folders

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import for_fit
from train_pytorch_model.errors import (
    InvalidDatasetError,
    NotLabeledDatasetError,
)
from train_pytorch_model.formats.fingerprint import differing_options
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.inputs.opening import open_training_inputs


def test_consistent_inputs_are_opened(tmp_path: Path) -> None:
    inputs = open_painted(tmp_path)
    assert inputs.categories == ("blue", "green", "red")
    assert (len(inputs.training), len(inputs.validation)) == (9, 9)
    assert inputs.unreadable_images == ()
    assert inputs.spec == ClassifierSpec(
        architecture="resnet18",
        option=False,
        categories=("blue", "green", "red"),
        framing=Framing(32, 32, 1.0),
        mean=HALF,
        std=HALF,
    )
    assert inputs.framing is inputs.spec.framing
    assert ClassifierSpec.from_mapping(inputs.spec.as_mapping()) == inputs.spec


def test_categories_are_matched_by_name_and_not_by_position(tmp_path: Path) -> None:
    images = [(f"{name}.ppm", b"P6 1 1 255\nabc", name) for name in ("red", "green", "blue")]
    write_image_directory(tmp_path / "validation", images, ["red", "green", "blue"])
    inputs = open_painted(tmp_path)
    assert inputs.validation.categories == ("blue", "green", "red")
    assert inputs.validation.class_indices.tolist() == [2, 1, 0]


def test_category_names_match_in_any_unicode_form(tmp_path: Path) -> None:
    """Folders copied from macOS may have decomposed accents."""
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    for dataset, first, name in (("training", 0, composed), ("validation", 9, decomposed)):
        paint_folders(tmp_path / dataset, 1, ("blue", "red"), first=first)
        (tmp_path / dataset / "red").rename(tmp_path / dataset / name)
    inputs = open_painted(tmp_path)
    assert inputs.validation.categories == inputs.training.categories == ("blue", composed)
    assert inputs.validation.class_indices.tolist() == [0, 1]


def test_categories_that_differ_are_listed_for_both_datasets(tmp_path: Path) -> None:
    paint_folders(tmp_path / "validation", 1, ("blue", "red"))
    (tmp_path / "validation/red").rename(tmp_path / "validation/crimson")
    with pytest.raises(InvalidDatasetError) as raised:
        open_painted(tmp_path)
    assert str(raised.value) == (
        f'Validation dataset "{tmp_path / "validation"}" is not valid, reason: its categories'
        f" are not those"
        " of the training dataset."
        "\nOnly in training:\n  'green'\n  'red'"
        "\nOnly in validation:\n  'crimson'\nBoth need the same category names."
    )


def test_a_category_that_only_validation_has_is_an_error(tmp_path: Path) -> None:
    paint_folders(tmp_path / "validation", 1)
    (tmp_path / "validation/white").mkdir()
    paint("blue", 0).save(tmp_path / "validation/white/1.png")
    message = r"training dataset\.\nOnly in validation:\n  'white'\nBoth need"
    with pytest.raises(InvalidDatasetError, match=message):
        open_painted(tmp_path)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_category_that_validation_lacks_is_a_warning(tmp_path: Path, is_there: bool) -> None:
    paint_folders(tmp_path / "validation", 1, ("blue", "red"), first=9)
    if is_there:
        (tmp_path / "validation/green").mkdir()
    inputs = open_painted(tmp_path)
    assert inputs.validation.categories == inputs.training.categories
    about_validation = [text for text in inputs.warnings if text.startswith("Validation dataset")]
    assert about_validation == [
        f"Validation dataset \"{tmp_path / 'validation'}\" has no image of category\n  'green'"
    ]


@pytest.mark.parametrize("port", ["training", "validation"])
def test_the_data_set_that_was_meant_is_named(tmp_path: Path, port: str) -> None:
    for name in ("test", "training", "validation"):
        paint_folders(tmp_path / port / name, 1)
    inner = str(tmp_path / port / port)
    with pytest.raises(
        InvalidDatasetError, match=rf"own, not a category\. Name one data set, such as '{inner}'"
    ):
        open_painted(tmp_path)


def test_a_single_category_with_images_is_an_error(tmp_path: Path) -> None:
    for name in ("training", "validation"):
        paint_folders(tmp_path / name, 2, ("blue",))
        (tmp_path / name / "empty").mkdir()
    message = (
        r"it has one category, 'blue'\. A classifier needs at least two\. Folders without an image"
        r" are no categories:\n  'empty'$"
    )
    with pytest.raises(InvalidDatasetError, match=message):
        open_painted(tmp_path)


@pytest.mark.parametrize("port", ["training", "validation"])
def test_images_without_categories_are_refused(tmp_path: Path, port: str) -> None:
    (tmp_path / port).mkdir()
    paint("blue", 0).save(tmp_path / port / "a.png")
    with pytest.raises(
        NotLabeledDatasetError, match=f"no label column in .*{port.title()} dataset"
    ):
        open_painted(tmp_path)


def test_unreadable_images_of_both_datasets_are_left_out(tmp_path: Path) -> None:
    for first, name in enumerate(("training", "validation")):
        paint_folders(tmp_path / name, per_category=3, first=10 * first)
    (tmp_path / "training/blue/1.png").write_bytes(b"")
    (tmp_path / "validation/red/12.png").write_bytes(b"")
    inputs = open_painted(tmp_path)
    assert [(image.port, image.file_name) for image in inputs.unreadable_images] == [
        ("Training dataset", "blue/1.png"),
        ("Validation dataset", "red/12.png"),
    ]
    assert (len(inputs.training), len(inputs.validation)) == (8, 8)


# ── The fingerprint of a run ─────────────────────────────────────────────────────────────────────


def test_the_fingerprint_covers_parameters_recipe_model_and_data(tmp_path: Path) -> None:
    inputs = open_painted(tmp_path)
    fingerprint = inputs.fingerprint(TrainConfig())
    assert fingerprint == inputs.fingerprint(TrainConfig())
    assert fingerprint["parameters"] == (
        "--epochs 5 --batch-size 16 --warmup-step-number 0 --learning-rate 0.001 --random-seed 1"
        " --patience 3 --print-frequency 10"
    )
    assert set(fingerprint) == {
        "parameters",
        "recipe",
        "untrained_model",
        "training_dataset",
        "validation_dataset",
    }


def test_the_fingerprint_covers_the_archive_that_the_images_are_from(tmp_path: Path) -> None:
    inputs = open_painted(tmp_path)
    before, after = (
        replace(inputs, archive=sha256).fingerprint(TrainConfig()) for sha256 in ("1", "2")
    )
    assert list(differing_options(before, after)) == [("--archive", "", "")]
    with for_fit():
        assert list(differing_options(before, after)) == [("the archive", "", "")]


def test_the_fingerprint_depends_on_image_sizes_but_not_on_flips(tmp_path: Path) -> None:
    inputs = open_painted(tmp_path)
    run = inputs.fingerprint(TrainConfig())
    assert run["recipe"] == (  # these very words, or runs in flight could not be resumed
        "--image-size 32,32 --training-size 32,32 --early-size 32,32 --crop-fraction 1.0"
        " --framing crop --augmentation none --crop-area 0.08 --label-smoothing 0.0 --cutmix 0.0"
        " --balance-classes False --freeze-backbone False --background 255,255,255 --optimizer"
        " auto --precision auto --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5"
    )
    assert all(inputs.with_flips(flip).fingerprint(TrainConfig()) == run for flip in (True, False))
    smaller = replace(
        inputs, recipe=replace(inputs.recipe, training_size=(16, 16), early_size=(16, 16))
    )
    assert list(differing_options(run, smaller.fingerprint(TrainConfig()))) == [
        ("--training-size", "32,32", "16,16"),
        ("--early-size", "32,32", "16,16"),
    ]


def test_a_run_is_told_from_one_that_is_deterministic(tmp_path: Path) -> None:
    inputs = open_painted(tmp_path)
    recipe = replace(inputs.recipe, deterministic=True)
    usual = inputs.fingerprint(TrainConfig())
    fixed = replace(inputs, recipe=recipe).fingerprint(TrainConfig())
    name = "--deterministic"
    assert list(differing_options(usual, fixed)) == [(name, "not set", "True")]
    assert list(differing_options(fixed, usual)) == [(name, "True", "not set")]


@pytest.mark.parametrize("file", ["model", "model_spec.yaml"])
def test_the_fingerprint_depends_on_the_model(tmp_path: Path, file: str) -> None:
    inputs = open_painted(tmp_path)
    before = inputs.fingerprint(TrainConfig())["untrained_model"]
    with (tmp_path / "model" / file).open("ab") as opened:
        opened.write(b"#")
    assert (
        inputs.fingerprint(TrainConfig())["untrained_model"] == before
    )  # computed when it was opened
    again = open_training_inputs(inputs.model.root, inputs.training.root, inputs.validation.root)
    assert again.fingerprint(TrainConfig())["untrained_model"] != before


def test_a_folder_of_categories_beside_others_is_named(tmp_path: Path) -> None:
    paint_folders(tmp_path / "training/photos", 2, ("blue", "red"))
    paint_folders(tmp_path / "validation", 2, ("blue", "red"))
    (tmp_path / "training/notes").mkdir()
    with pytest.raises(InvalidDatasetError, match="then name the folder 'photos' in it"):
        open_painted(tmp_path)
