"""Training sizes: in random crops, in early epochs, and for weights trained at one resolution."""

from pathlib import Path
from typing import Any

import pytest
from tests.model_directories import HALF, model_of, write_model

from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.errors import InvalidModelDirectoryError
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.inputs.decide import decide, is_early


@pytest.mark.parametrize(
    ("entries", "common_size", "training_size"),
    [
        pytest.param({}, None, (176, 176), id="photographs"),
        pytest.param({}, (32, 32), (32, 32), id="images that are not cropped at random"),
        pytest.param({"image_size": 384}, None, (304, 304), id="a multiple of 16"),
        pytest.param({"image_size": (224, 320)}, None, (176, 256), id="the minimum side"),
        pytest.param({"image_size": (192, 320)}, None, (176, 288), id="not below the minimum side"),
        pytest.param(
            {"image_size": (177, 186)}, None, (176, 186), id="not above the prediction size"
        ),
        pytest.param({"image_size": (176, 320)}, None, (176, 320), id="the minimum side itself"),
        pytest.param(
            {"image_size": 32}, (32, 32), (32, 32), id="the recipe's size is the images' own"
        ),
        pytest.param({}, (3000, 4000), (176, 176), id="a camera's size"),
        pytest.param({"training_size": 224}, None, (224, 224), id="the recipe's side"),
        pytest.param({"training_size": (16, 24)}, (32, 32), (16, 24), id="the recipe's sides"),
        pytest.param({"augmentation": "none"}, None, (224, 224), id="the recipe's augmentation"),
    ],
)
def test_random_crops_are_smaller_than_prediction_images(
    tmp_path: Path,
    entries: dict[str, Any],
    common_size: tuple[int, int] | None,
    training_size: tuple[int, int],
) -> None:
    decided, _ = decide(model_of(tmp_path, Recipe(**entries)), common_size, epochs=15)
    assert decided.training_size == training_size


@pytest.mark.parametrize(
    ("epochs", "entries", "common_size", "early_size"),
    [
        pytest.param(11, {}, None, (128, 128), id="photographs"),
        pytest.param(1, {}, None, (224, 224), id="no epochs before the last"),
        pytest.param(
            12, {"early_size": 200}, None, (200, 200), id="the recipe's, larger than crops"
        ),
        pytest.param(12, {}, None, (176, 176), id="photographs, in random crops"),
        pytest.param(9, {}, (224, 224), (128, 128), id="images of a common size"),
        pytest.param(10, {}, (224, 224), (224, 224), id="padded crops"),
        pytest.param(12, {"augmentation": "none"}, None, (224, 224), id="many epochs"),
        pytest.param(
            5, {"augmentation": "random-resized-crop"}, None, (176, 176), id="in random crops"
        ),
        pytest.param(5, {}, (175, 320), (175, 320), id="small images"),
        pytest.param(5, {}, (176, 320), (96, 176), id="images of one size"),
        pytest.param(5, {"image_size": 384}, None, (224, 224), id="larger images"),
        pytest.param(5, {"training_size": 224}, None, (224, 224), id="the recipe's training size"),
        pytest.param(5, {"early_size": (64, 96)}, None, (64, 96), id="the recipe's sides"),
        pytest.param(5, {"early_size": 224}, None, (224, 224), id="the recipe's, as large"),
        pytest.param(
            5, {"training_size": 192, "early_size": 160}, None, (160, 160), id="the recipe's sizes"
        ),
    ],
)
def test_images_are_smaller_in_the_early_epochs_of_short_training(
    tmp_path: Path,
    epochs: int,
    entries: dict[str, Any],
    common_size: tuple[int, int] | None,
    early_size: tuple[int, int],
) -> None:
    decided, _ = decide(model_of(tmp_path, Recipe(**entries)), common_size, epochs=epochs)
    assert decided.early_size == early_size


@pytest.mark.parametrize(("is_pretrained", "trained"), [(True, False), (False, True)])
def test_weights_trained_at_one_resolution_are_fine_tuned_at_it(
    tmp_path: Path, is_pretrained: bool, trained: bool
) -> None:
    recipe = Recipe(image_size=(224, 224), crop_fraction=0.875, mean=HALF, std=HALF)
    decided, _ = decide(model_of(tmp_path, recipe, is_pretrained, trained), None)
    assert decided.augmentation == "none"
    assert decided.training_size == decided.early_size == (224, 224)


def test_early_images_larger_than_the_later_ones_are_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, Recipe(early_size=225))
    with pytest.raises(
        InvalidModelDirectoryError,
        match=(
            r"its recipe names early_size 225; images are trained at 224 x 224 px\. In"
            r" init-model, give a"
            r" larger --training-size, or a smaller --early-size, or neither\."
        ),
    ):
        decide(model, None)


@pytest.mark.parametrize(
    ("epochs", "early"), [(1, 0), (2, 1), (3, 2), (5, 4), (7, 6), (8, 6), (10, 8), (30, 24)]
)
def test_the_last_fifth_of_the_epochs_is_not_early(epochs: int, early: int) -> None:
    assert [is_early(epoch, epochs) for epoch in range(1, epochs + 1)] == [True] * early + [
        False
    ] * (epochs - early)


def test_training_images_larger_than_prediction_images_are_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, Recipe(training_size=(32, 33)))
    with pytest.raises(
        InvalidModelDirectoryError,
        match=(
            r"training_size \(32, 33\); images are predicted at 32 x 32 px\. In init-model, give a"
            r" larger --image-size, or a smaller --training-size, or neither\."
        ),
    ):
        decide(model, (32, 32))


def test_transformers_are_trained_at_their_prediction_size(tmp_path: Path) -> None:
    model = open_model_directory(write_model(tmp_path / "a", architecture="swin_t"), "Model")
    decided = decide(model, None)[0]
    assert decided.training_size == decided.early_size == (224, 224)
    asked = open_model_directory(
        write_model(tmp_path / "b", Recipe(training_size=160), architecture="swin_t"), ""
    )
    assert decide(asked, None)[0].training_size == (160, 160)


def test_a_network_of_fixed_size_is_trained_at_it(tmp_path: Path) -> None:
    model = open_model_directory(write_model(tmp_path / "a", architecture="vit_b_16"), "Model")
    assert decide(model, None)[0].training_size == (224, 224)
    smaller = write_model(tmp_path / "b", Recipe(training_size=160), architecture="vit_b_16")
    with pytest.raises(
        InvalidModelDirectoryError,
        match=r"its recipe names training_size 160; the only size of a vit_b_16 is 224\.",
    ):
        decide(open_model_directory(smaller, "Model"), None)


@pytest.mark.parametrize("size", [224, (224, 224)])
def test_a_recipe_may_name_the_only_size(tmp_path: Path, size: int | tuple[int, int]) -> None:
    root = write_model(tmp_path / "model", Recipe(image_size=size), architecture="vit_b_16")
    assert decide(open_model_directory(root, "Model"), None)[0].image_size == (224, 224)


def test_a_recipe_that_names_another_than_the_only_size_is_refused(tmp_path: Path) -> None:
    root = write_model(tmp_path / "model", Recipe(image_size=256), architecture="vit_b_16")
    with pytest.raises(
        InvalidModelDirectoryError,
        match=r"its recipe names image_size 256; the only size of a vit_b_16 is 224\.",
    ):
        decide(open_model_directory(root, "Model"), None)


def test_all_sizes_other_than_the_only_one_are_refused_at_once(tmp_path: Path) -> None:
    recipe = Recipe(image_size=256, training_size=160, early_size=96)
    root = write_model(tmp_path / "model", recipe, architecture="vit_b_16")
    with pytest.raises(
        InvalidModelDirectoryError, match="256 and training_size 160 and early_size 96; the"
    ):
        decide(open_model_directory(root, "Model"), None)
