"""What the data decide if the recipe does not: prediction size, crops, flips, normalization."""

from pathlib import Path
from typing import Any

import pytest
from tests.model_directories import HALF, model_of, write_model

from train_pytorch_model.config.recipe import MAX_IMAGE_SIZE, Recipe
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.image_classifier.spec import IMAGENET_MEAN, IMAGENET_STD
from train_pytorch_model.inputs.decide import decide

IMAGENET = (IMAGENET_MEAN, IMAGENET_STD)


@pytest.mark.parametrize(
    ("entries", "common_size", "size", "crop_fraction", "augmentation", "reason"),
    [
        pytest.param(
            {},
            (32, 32),
            (32, 32),
            1.0,
            "padded-crop",
            "the size of the images",
            id="small and common",
        ),
        pytest.param({}, (31, 40), (31, 40), 1.0, "none", "the size of the images", id="digits"),
        pytest.param(
            {},
            (320, 32),
            (320, 32),
            1.0,
            "padded-crop",
            "the size of the images",
            id="at the limit",
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
def test_a_network_of_fixed_size_accepts_no_other(
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
def test_images_are_cropped_only_in_long_training(
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
def test_labels_of_small_images_are_smoothed_in_long_training(
    tmp_path: Path,
    common_size: tuple[int, int] | None,
    recipe: Recipe,
    epochs: int,
    smoothing: float,
) -> None:
    decided, _ = decide(model_of(tmp_path, recipe), common_size, epochs=epochs)
    assert decided.label_smoothing == smoothing


@pytest.mark.parametrize(
    ("recipe", "kind", "epochs", "share"),
    [
        (Recipe(), {"is_pretrained": True}, 14, 0.0),
        (Recipe(), {"is_pretrained": True}, 15, 0.5),
        (Recipe(mean=HALF, std=HALF), {"trained": True}, 15, 0.5),
        (Recipe(mean=HALF, std=HALF), {"trained": True, "is_pretrained": True}, 15, 0.5),
        (Recipe(), {}, 30, 0.0),
        (Recipe(freeze_backbone=True), {"is_pretrained": True}, 30, 0.0),
        (Recipe(cutmix=0.0), {"is_pretrained": True}, 30, 0.0),
        (Recipe(cutmix=0.2), {}, 5, 0.2),
    ],
)
def test_long_fine_tuning_uses_cutmix(
    tmp_path: Path, recipe: Recipe, kind: dict[str, bool], epochs: int, share: float
) -> None:
    model = model_of(tmp_path, recipe, **kind)
    assert decide(model, None, ("others", "than those"), epochs)[0].cutmix == share
    if model.categories:  # further training for the same categories
        assert decide(model, None, model.categories, epochs)[0].cutmix == 0.0


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
def test_images_are_not_mirrored_if_category_names_imply_sides(
    tmp_path: Path, categories: tuple[str, ...], tell_nothing: bool
) -> None:
    expected = "auto" if tell_nothing else False
    assert decide(model_of(tmp_path, Recipe()), None, categories)[0].horizontal_flip is expected
    for number, asked in enumerate((True, False)):
        model = model_of(tmp_path / str(number), Recipe(horizontal_flip=asked))
        assert decide(model, None, categories)[0].horizontal_flip is asked


@pytest.mark.parametrize("asked", [None, 32], ids=["as published", "named"])
def test_training_again_at_the_same_size_decides_as_the_first_time(
    tmp_path: Path, asked: int | None
) -> None:
    first, _ = decide(model_of(tmp_path / "1", Recipe(image_size=asked)), (32, 32), epochs=30)
    size, crop_fraction = first.image_size, first.crop_fraction
    published = Recipe(image_size=size, crop_fraction=crop_fraction, mean=HALF, std=HALF)
    again, _ = decide(model_of(tmp_path / "2", published, trained=True), (32, 32), epochs=30)
    assert first.augmentation == again.augmentation == "padded-crop"
    assert first.label_smoothing == again.label_smoothing == 0.1
    assert first.crop_fraction == again.crop_fraction == 1.0


def test_images_smaller_than_any_recipe_allows_are_enlarged(tmp_path: Path) -> None:
    decided, reason = decide(model_of(tmp_path, Recipe()), (7, 300))
    assert decided.image_size == (224, 224)
    assert reason == "the images have less than 8 px on a side"


def test_scoring_accepts_a_larger_common_size(tmp_path: Path) -> None:
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
def test_the_normalization_is_the_one_that_the_weights_were_trained_with(
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
