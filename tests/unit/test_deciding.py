"""What the data decide where a recipe leaves it open: size, crops, flips, normalisation."""

from pathlib import Path
from typing import Any

import pytest
from tests.model_directories import HALF, write_model

from train_pytorch_model.decided_recipe import decide, is_early
from train_pytorch_model.errors import (
    InvalidModelDirectoryError,
)
from train_pytorch_model.formats.model_directory import (
    ModelDirectory,
    open_model_directory,
)
from train_pytorch_model.image_classifier.preprocessing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
)
from train_pytorch_model.recipe import MAX_IMAGE_SIZE, Recipe

IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)


def model_of(
    tmp_path: Path, recipe: Recipe, is_pretrained: bool = False, trained: bool = False
) -> ModelDirectory:
    categories = ("x", "y") if trained else ()
    return open_model_directory(write_model(tmp_path / "model", recipe, is_pretrained, categories), "Model")


@pytest.mark.parametrize(
    ("entries", "common_size", "size", "crop_fraction", "augmentation", "reason"),
    [
        pytest.param(
            {}, (32, 32), (32, 32), 1.0, "padded-crop", "the size of the images", id="small and common"
        ),
        pytest.param({}, (31, 40), (31, 40), 1.0, "none", "the size of the images", id="digits"),
        pytest.param(
            {}, (320, 32), (320, 32), 1.0, "padded-crop", "the size of the images", id="at the limit"
        ),
        pytest.param(
            {},
            (321, 32),
            (224, 224),
            0.875,
            "random-resized-crop",
            "the images are larger",
            id="a camera's common size",
        ),
        pytest.param(
            {},
            None,
            (224, 224),
            0.875,
            "random-resized-crop",
            "the images differ in size",
            id="no common size",
        ),
        pytest.param(
            {"image_size": 64},
            (32, 32),
            (64, 64),
            0.875,
            "random-resized-crop",
            "the recipe says so",
            id="the recipe's side",
        ),
        pytest.param(
            {"image_size": (48, 64), "crop_fraction": 1.0, "augmentation": "none"},
            None,
            (48, 64),
            1.0,
            "none",
            "the recipe says so",
            id="the recipe's everything",
        ),
        pytest.param(
            {"crop_fraction": 0.5},
            (32, 32),
            (32, 32),
            0.5,
            "padded-crop",
            "the size of the images",
            id="the recipe's crop",
        ),
        pytest.param(
            {"augmentation": "random-resized-crop"},
            (32, 32),
            (32, 32),
            1.0,
            "random-resized-crop",
            "the size of the images",
            id="the recipe's augmentation",
        ),
    ],
)
def test_data_and_recipe_decide_size_and_crops(
    tmp_path: Path,
    entries: dict[str, Any],
    common_size: tuple[int, int] | None,
    size: tuple[int, int],
    crop_fraction: float,
    augmentation: str,
    reason: str,
) -> None:
    decided, why = decide(model_of(tmp_path, Recipe(**entries)), common_size, epochs=15)
    assert (decided.image_size, decided.crop_fraction, decided.augmentation, why) == (
        size,
        crop_fraction,
        augmentation,
        reason,
    )


@pytest.mark.parametrize(
    ("common_size", "crop_fraction", "augmentation"),
    [((224, 224), 1.0, "padded-crop"), ((32, 32), 0.875, "random-resized-crop")],
)
def test_a_network_of_one_size_takes_no_other(
    tmp_path: Path, common_size: tuple[int, int], crop_fraction: float, augmentation: str
) -> None:
    model = open_model_directory(write_model(tmp_path / "model", architecture="vit_b_16"), "Model")
    decided, reason = decide(model, common_size, epochs=15)
    assert decided.image_size == (224, 224)
    assert (decided.crop_fraction, decided.augmentation) == (crop_fraction, augmentation)
    assert reason == "the only size of a vit_b_16"


@pytest.mark.parametrize(
    ("common_size", "recipe", "epochs", "augmentation"),
    [
        ((32, 32), Recipe(), 9, "none"),
        ((32, 32), Recipe(), 10, "padded-crop"),
        ((32, 32), Recipe(augmentation="padded-crop"), 1, "padded-crop"),
        (None, Recipe(), 11, "none"),
        (None, Recipe(), 12, "random-resized-crop"),
        (None, Recipe(augmentation="random-resized-crop"), 1, "random-resized-crop"),
        (None, Recipe(crop_area=0.35), 1, "random-resized-crop"),
        ((32, 32), Recipe(crop_area=0.35), 10, "padded-crop"),
    ],
)
def test_images_are_cropped_only_in_a_training_of_many_epochs(
    tmp_path: Path,
    common_size: tuple[int, int] | None,
    recipe: Recipe,
    epochs: int,
    augmentation: str,
) -> None:
    decided, _ = decide(model_of(tmp_path, recipe), common_size, epochs=epochs)
    assert decided.augmentation == augmentation


@pytest.mark.parametrize(
    ("common_size", "recipe", "epochs", "smoothing"),
    [
        ((8, 8), Recipe(), 14, 0.0),
        ((8, 8), Recipe(), 15, 0.1),
        (None, Recipe(), 15, 0.0),
        ((8, 8), Recipe(label_smoothing=0.0), 15, 0.0),
        (None, Recipe(label_smoothing=0.2), 1, 0.2),
    ],
)
def test_targets_of_small_images_are_smoothed_in_a_training_of_many_epochs(
    tmp_path: Path, common_size: tuple[int, int] | None, recipe: Recipe, epochs: int, smoothing: float
) -> None:
    decided, _ = decide(model_of(tmp_path, recipe), common_size, epochs=epochs)
    assert decided.label_smoothing == smoothing


@pytest.mark.parametrize(
    ("categories", "tell_nothing"),
    [
        (tuple("0123456789"), False),
        (("A", "b", "ß"), False),
        (("turn_left", "straight"), False),
        (("Right hand", "other"), False),
        (("left2", "up"), False),
        (("bright", "cleft"), True),
        (("1", "22"), True),
        (("daisy", "tulip"), True),
    ],
)
def test_images_are_not_mirrored_where_names_tell_that_it_matters(
    tmp_path: Path, categories: tuple[str, ...], tell_nothing: bool
) -> None:
    expected = "auto" if tell_nothing else False
    assert decide(model_of(tmp_path, Recipe()), None, categories)[0].horizontal_flip is expected
    for number, asked in enumerate((True, False)):
        model = model_of(tmp_path / str(number), Recipe(horizontal_flip=asked))
        assert decide(model, None, categories)[0].horizontal_flip is asked


@pytest.mark.parametrize(
    ("entries", "common_size", "training_size"),
    [
        pytest.param({}, None, (176, 176), id="photographs"),
        pytest.param({}, (32, 32), (32, 32), id="images that are not cropped at random"),
        pytest.param({"image_size": 384}, None, (304, 304), id="a multiple of 16"),
        pytest.param({"image_size": (224, 320)}, None, (176, 256), id="the least side"),
        pytest.param({"image_size": (192, 320)}, None, (176, 288), id="not below the least side"),
        pytest.param({"image_size": (177, 186)}, None, (176, 186), id="not above what is predicted"),
        pytest.param({"image_size": (176, 320)}, None, (176, 320), id="the least side itself"),
        pytest.param({"image_size": 32}, (32, 32), (32, 32), id="a named size that is the images' own"),
        pytest.param({}, (3000, 4000), (176, 176), id="a camera's size"),
        pytest.param({"training_size": 224}, None, (224, 224), id="the recipe's side"),
        pytest.param({"training_size": (16, 24)}, (32, 32), (16, 24), id="the recipe's sides"),
        pytest.param({"augmentation": "none"}, None, (224, 224), id="the recipe's augmentation"),
    ],
)
def test_random_crops_are_smaller_than_the_images_that_are_predicted(
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
        pytest.param(12, {"early_size": 200}, None, (200, 200), id="the recipe's, larger than crops are"),
        pytest.param(12, {}, None, (176, 176), id="photographs, in crops"),
        pytest.param(9, {}, (224, 224), (128, 128), id="images of a common size"),
        pytest.param(10, {}, (224, 224), (224, 224), id="images that are moved"),
        pytest.param(12, {"augmentation": "none"}, None, (224, 224), id="many epochs"),
        pytest.param(5, {"augmentation": "random-resized-crop"}, None, (176, 176), id="in crops"),
        pytest.param(5, {}, (175, 320), (175, 320), id="small images"),
        pytest.param(5, {}, (176, 320), (96, 176), id="images of one size"),
        pytest.param(5, {"image_size": 384}, None, (224, 224), id="larger ones"),
        pytest.param(5, {"training_size": 224}, None, (224, 224), id="of a size that the recipe names"),
        pytest.param(5, {"early_size": (64, 96)}, None, (64, 96), id="the recipe's sides"),
        pytest.param(5, {"early_size": 224}, None, (224, 224), id="the recipe's, as large"),
        pytest.param(5, {"training_size": 192, "early_size": 160}, None, (160, 160), id="the recipe's sizes"),
    ],
)
def test_images_are_smaller_before_the_last_of_few_epochs(
    tmp_path: Path,
    epochs: int,
    entries: dict[str, Any],
    common_size: tuple[int, int] | None,
    early_size: tuple[int, int],
) -> None:
    decided, _ = decide(model_of(tmp_path, Recipe(**entries)), common_size, epochs=epochs)
    assert decided.early_size == early_size


@pytest.mark.parametrize(("is_pretrained", "trained"), [(True, False), (False, True)])
def test_a_network_that_knows_a_size_is_trained_at_it(
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
            r"its recipe names early_size 225; images are trained at 224 x 224 px\. In init-model, name a"
            r" larger --training-size, or a smaller --early-size, or neither\."
        ),
    ):
        decide(model, None)


@pytest.mark.parametrize(
    ("epochs", "early"), [(1, 0), (2, 1), (3, 2), (5, 4), (7, 6), (8, 6), (10, 8), (30, 24)]
)
def test_the_last_fifth_of_the_epochs_is_not_early(epochs: int, early: int) -> None:
    assert [is_early(epoch, epochs) for epoch in range(1, epochs + 1)] == [True] * early + [False] * (
        epochs - early
    )


def test_training_images_larger_than_those_that_are_predicted_are_refused(tmp_path: Path) -> None:
    model = model_of(tmp_path, Recipe(training_size=(32, 33)))
    with pytest.raises(
        InvalidModelDirectoryError,
        match=(
            r"training_size \(32, 33\); images are predicted at 32 x 32 px\. In init-model, name an"
            r" --image-size as large, or a smaller --training-size, or neither\."
        ),
    ):
        decide(model, (32, 32))


def test_networks_of_attention_are_trained_at_the_size_of_their_predictions(tmp_path: Path) -> None:
    model = open_model_directory(write_model(tmp_path / "a", architecture="swin_t"), "Model")
    decided = decide(model, None)[0]
    assert decided.training_size == decided.early_size == (224, 224)
    asked = open_model_directory(
        write_model(tmp_path / "b", Recipe(training_size=160), architecture="swin_t"), ""
    )
    assert decide(asked, None)[0].training_size == (160, 160)


def test_a_network_of_one_size_is_trained_at_it(tmp_path: Path) -> None:
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


def test_a_recipe_that_names_another_size_than_the_only_one_is_refused(tmp_path: Path) -> None:
    root = write_model(tmp_path / "model", Recipe(image_size=256), architecture="vit_b_16")
    with pytest.raises(
        InvalidModelDirectoryError,
        match=r"its recipe names image_size 256; the only size of a vit_b_16 is 224\.",
    ):
        decide(open_model_directory(root, "Model"), None)


def test_all_sizes_that_are_not_the_only_one_are_refused_at_once(tmp_path: Path) -> None:
    recipe = Recipe(image_size=256, training_size=160, early_size=96)
    root = write_model(tmp_path / "model", recipe, architecture="vit_b_16")
    with pytest.raises(InvalidModelDirectoryError, match="256 and training_size 160 and early_size 96; the"):
        decide(open_model_directory(root, "Model"), None)


@pytest.mark.parametrize("asked", [None, 32], ids=["as published", "named"])
def test_images_of_the_size_that_the_model_sees_are_as_in_its_first_training(
    tmp_path: Path, asked: int | None
) -> None:
    first, _ = decide(model_of(tmp_path / "1", Recipe(image_size=asked)), (32, 32), epochs=30)
    size, crop_fraction = first.image_size, first.crop_fraction
    published = Recipe(image_size=size, crop_fraction=crop_fraction, mean=HALF, std=HALF)
    again, _ = decide(model_of(tmp_path / "2", published, trained=True), (32, 32), epochs=30)
    assert first.augmentation == again.augmentation == "padded-crop"
    assert first.label_smoothing == again.label_smoothing == 0.1
    assert first.crop_fraction == again.crop_fraction == 1.0


def test_images_that_no_recipe_could_name_are_enlarged(tmp_path: Path) -> None:
    decided, reason = decide(model_of(tmp_path, Recipe()), (7, 300))
    assert decided.image_size == (224, 224)
    assert reason == "the images have less than 8 px on a side"


def test_scoring_takes_a_larger_common_size(tmp_path: Path) -> None:
    model = model_of(tmp_path, Recipe())
    largest = MAX_IMAGE_SIZE
    assert decide(model, (largest, 100), max_common_side=largest)[0].image_size == (largest, 100)
    assert decide(model, (largest + 1, 100), max_common_side=largest)[0].image_size == (224, 224)


@pytest.mark.parametrize(
    ("recipe", "is_pretrained", "trained", "expected"),
    [
        pytest.param(Recipe(), False, False, (HALF, HALF), id="from scratch"),
        pytest.param(Recipe(), True, False, IMAGENET, id="pretrained"),
        pytest.param(
            Recipe(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
            True,
            False,
            ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
            id="the recipe's",
        ),
        pytest.param(
            Recipe(mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)),
            False,
            True,
            ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
            id="a trained directory's",
        ),
    ],
)
def test_the_normalisation_is_the_one_that_the_weights_were_made_with(
    tmp_path: Path,
    recipe: Recipe,
    is_pretrained: bool,
    trained: bool,
    expected: tuple[tuple[float, ...], tuple[float, ...]],
) -> None:
    decided, _ = decide(model_of(tmp_path, recipe, is_pretrained, trained), None)
    assert (decided.mean, decided.std) == expected


def test_a_designer_models_pre_processor_is_kept_when_it_is_trained_further(tmp_path: Path) -> None:
    root = write_model(
        tmp_path / "model", Recipe(mean=HALF, std=HALF), is_pretrained=True, categories=("x", "y")
    )
    spec = (root / "model_spec.yaml").read_text()
    (root / "model_spec.yaml").write_text(spec[: spec.index("recipe:")])
    model = open_model_directory(root, "Model")
    assert model.recipe == Recipe()
    decided, _ = decide(model, None)
    assert (decided.mean, decided.std) == (HALF, HALF)
