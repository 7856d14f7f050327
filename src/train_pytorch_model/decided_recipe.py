"""What the data decide where a recipe leaves it open: sizes, crops, flips, smoothing, normalisation."""

import re
from collections.abc import Sequence
from dataclasses import replace

from train_pytorch_model.config import TrainConfig
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.image_classifier.preprocessing import IMAGENET_MEAN, IMAGENET_STD
from train_pytorch_model.recipe import MIN_IMAGE_SIZE, Augmentation, Recipe, fits_into, sides

MAX_COMMON_SIDE = 320  # px; larger images of one size are a camera's, not "already transformed"
DEFAULT_SIZE = 224
DEFAULT_CROP_FRACTION = 0.875
# Objects look larger in random crops than in whole images. Trained on smaller crops, a network sees them at
# one size in both, and a step costs less (Touvron et al. 2019). torchvision trains its own weights at 176 px
# for 224. Small images lose by it: measured at 64 and 128 px.
TRAINING_SHARE = 176 / 224
MIN_TRAINING_SIDE = 176
SIDE_MULTIPLE = 16  # networks halve the side four times or more: others waste computing on padding
# Smaller images teach a network sooner what there is to see, in a third of the computing, and the last epochs
# get it used to the size of its predictions (progressive resizing). Weights that know a size would have to
# get used to two. In many epochs images that are not cropped are learned by heart, and patience may end a run
# before the last ones.
EARLY_SHARE = 128 / 224
MIN_SHRUNK_SIDE = 176
FULL_SIZE_SHARE = 1 / 5  # of the epochs, the last ones
MIN_PADDED_CROP_SIDE = 32
# In fewer epochs the network does not memorise the images, and what prevents that only slows it. Measured at
# 5, 10 and 30 epochs; random crops, which cost at 10 and pay at 15, there too; smoothing at 5 and 30: on
# photographs, which random crops keep new, it costs.
MIN_PADDED_CROP_EPOCHS = 10
MIN_RANDOM_CROP_EPOCHS = 12
MIN_SMOOTHED_EPOCHS = 15
LABEL_SMOOTHING = 0.1

SIDES = {"left", "right"}


def decide(
    model: ModelDirectory,
    common_size: tuple[int, int] | None,
    categories: Sequence[str] = (),
    epochs: int = TrainConfig.epochs,
    max_common_side: int = MAX_COMMON_SIDE,
) -> tuple[Recipe, str]:
    """The model's recipe with sizes, augmentation and normalisation decided, and the reason for the size.

    `common_size` is the (height, width) of nearly all images, None when they differ. `categories` and
    `epochs` are a training's. Flips stay "auto" where it takes a look at the images to decide (`chirality`).
    """
    recipe = model.recipe
    fixed_side = FAMILY_OF[model.architecture].image_size
    if fixed_side is not None:
        size, reason = sides(fixed_side), f"the only size of a {model.architecture}"
        asked = {name: getattr(recipe, name) for name in ("image_size", "training_size", "early_size")}
        others = [f"{name} {side}" for name, side in asked.items() if side and sides(side) != size]
        if others:
            raise model.error(f"its recipe names {' and '.join(others)}; {reason} is {fixed_side}.")
    elif recipe.image_size is not None:
        size, reason = sides(recipe.image_size), "the recipe says so"
    elif common_size is None:
        size, reason = sides(DEFAULT_SIZE), "the images differ in size"
    elif max(common_size) > max_common_side:
        size, reason = sides(DEFAULT_SIZE), "the images are larger"
    elif min(common_size) < MIN_IMAGE_SIZE:
        size, reason = sides(DEFAULT_SIZE), f"the images have less than {MIN_IMAGE_SIZE} px on a side"
    else:
        size, reason = common_size, "the size of the images"
    is_common = common_size == size and max(size) <= max_common_side
    augmentation = recipe.augmentation
    if augmentation == "auto":
        augmentation = _augmentation(recipe, size, is_common, epochs)
    smoothing = recipe.label_smoothing
    if smoothing is None:
        smoothing = LABEL_SMOOTHING if is_common and epochs >= MIN_SMOOTHED_EPOCHS else 0.0
    mean, std = recipe.mean or model.mean, recipe.std or model.std
    if mean is None or std is None:
        half = (0.5, 0.5, 0.5)
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if model.is_pretrained else (half, half)
    not_by_name = recipe.horizontal_flip == "auto" and flips_change_meaning(categories)
    training_size = _training_size(model, size, augmentation)
    decided = replace(
        recipe,
        image_size=size,
        training_size=training_size,
        early_size=_early_size(model, training_size, augmentation, epochs),
        crop_fraction=recipe.crop_fraction or (1.0 if is_common else DEFAULT_CROP_FRACTION),
        augmentation=augmentation,
        horizontal_flip=False if not_by_name else recipe.horizontal_flip,
        label_smoothing=smoothing,
        mean=mean,
        std=std,
    )
    return decided, reason


def _augmentation(recipe: Recipe, size: tuple[int, int], is_common: bool, epochs: int) -> Augmentation:
    if not is_common:
        is_asked_for = recipe.crop_area != Recipe.crop_area
        return "random-resized-crop" if is_asked_for or epochs >= MIN_RANDOM_CROP_EPOCHS else "none"
    is_large = min(size) >= MIN_PADDED_CROP_SIDE
    return "padded-crop" if is_large and epochs >= MIN_PADDED_CROP_EPOCHS else "none"


def _training_size(model: ModelDirectory, size: tuple[int, int], augmentation: str) -> tuple[int, int]:
    """(height, width) of training images for a model that predicts images of `size`."""
    asked = model.recipe.training_size
    if asked is not None:
        if not fits_into(asked, size):
            raise model.error(
                f"its recipe names training_size {asked}; images are predicted at {size[0]} x {size[1]} px.",
                "In init-model, name an --image-size as large, or a smaller --training-size, or neither.",
            )
        return sides(asked)
    is_random_crop = augmentation == "random-resized-crop"
    is_convolutional = FAMILY_OF[model.architecture].is_convolutional
    share = max(TRAINING_SHARE, MIN_TRAINING_SIDE / min(size))
    if not is_convolutional or not is_random_crop or share >= 1:
        return size
    height, width = (min(side, round(side * share / SIDE_MULTIPLE) * SIDE_MULTIPLE) for side in size)
    early = model.recipe.early_size
    if early is not None and fits_into(early, size):
        height, width = map(max, (height, width), sides(early))
    return height, width


def _early_size(
    model: ModelDirectory, training_size: tuple[int, int], augmentation: str, epochs: int
) -> tuple[int, int]:
    """(height, width) of training images before the last epochs."""
    recipe = model.recipe
    if recipe.early_size is not None:
        if not fits_into(recipe.early_size, training_size):
            asked, (height, width) = recipe.early_size, training_size
            raise model.error(
                f"its recipe names early_size {asked}; images are trained at {height} x {width} px.",
                "In init-model, name a larger --training-size, or a smaller --early-size, or neither.",
            )
        return sides(recipe.early_size)
    knows_a_size = model.is_pretrained or model.is_trained
    is_short = 1 < epochs < MIN_RANDOM_CROP_EPOCHS and augmentation == "none"
    is_shrunk = (
        is_short
        and not knows_a_size
        and recipe.training_size is None
        and FAMILY_OF[model.architecture].is_convolutional
        and min(training_size) >= MIN_SHRUNK_SIDE
    )
    if not is_shrunk:
        return training_size
    height, width = (round(side * EARLY_SHARE / SIDE_MULTIPLE) * SIDE_MULTIPLE for side in training_size)
    return height, width


def is_early(epoch: int, epochs: int) -> bool:
    """Whether an epoch, counted from 1, is not one of the last, which have images of the training size."""
    return epoch <= epochs - max(1, round(FULL_SIZE_SHARE * epochs))


def flips_change_meaning(categories: Sequence[str]) -> bool:
    """Whether mirrored images are of another category, or of none, as far as names tell.

    That is so for digits and letters, each of one character, and where left or right is in a name.
    """
    if not categories:
        return False
    words = {word for name in categories for word in re.split(r"[\W\d_]+", name.casefold())}
    return not words.isdisjoint(SIDES) or all(len(name) == 1 for name in categories)
