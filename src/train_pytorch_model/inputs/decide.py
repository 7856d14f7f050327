"""Decide from the data what a recipe leaves open: sizes, crops, flips, smoothing, normalization."""

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

from train_pytorch_model.config.recipe import (
    MIN_IMAGE_SIZE,
    Augmentation,
    OpenRecipe,
    Recipe,
    fits_into,
    sides,
)
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import parameter, with_init_model
from train_pytorch_model.formats.label_kinds import (
    ONE_PER_IMAGE,
    LabelKind,
    OnePerImage,
    SetsPerImage,
)
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier.architectures import family_of
from train_pytorch_model.image_classifier.colours import MAX_WHITE, Colours
from train_pytorch_model.image_classifier.spec import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    ClassifierSpec,
    Framing,
    FramingMode,
)

Size = tuple[int, int]  # (height, width) in px
Triple = tuple[float, float, float]  # a value for red, green and blue

# px; larger images of a common size come from a camera, not from preprocessing.
MAX_COMMON_SIDE = 320
DEFAULT_SIZE = 224
DEFAULT_CROP_FRACTION = 0.875
# Objects appear larger in random crops than in whole images. Training on smaller crops makes the
# sizes match, and steps cheaper (Touvron et al. 2019). torchvision trains its own weights at 176 px
# for 224. Small images lose accuracy this way: measured at 64 and 128 px.
TRAINING_FRACTION = 176 / 224
MIN_TRAINING_SIDE = 176
# Networks halve the side four times or more: other sides waste computation on padding.
SIDE_MULTIPLE = 16
# Progressive resizing: the network learns faster from smaller images, at a third of the
# computation, and the last epochs adapt it to the size of its predictions. Not for weights trained
# at one resolution, which would have to adapt to two. Not in long runs: without crops they overfit,
# and early stopping may end them before the last epochs.
EARLY_FRACTION = 128 / 224
MIN_SHRUNK_SIDE = 176
FULL_SIZE_FRACTION = 1 / 5  # of the epochs, at the end of the run
# A centre crop hides half of an image that is twice as long as the model's input, or more.
# Photographs, up to 16:9, are cropped: objects in them are larger then, and mostly in the middle.
ELONGATED = 2.0  # ratio of the aspect ratios
MAX_ELONGATED_FRACTION = 0.2  # of the images; of more, all are padded
NEARLY_ALL = 0.995  # of an image's area: not worth a word
MIN_PADDED_CROP_SIDE = 32
# In fewer epochs the network does not overfit, and regularization only slows it down. Measured at
# 5, 10 and 30 epochs. Random crops, also measured at 15, cost accuracy at 10 epochs and add to it
# at 15. Smoothing, measured at 5 and 30, costs accuracy on photographs, which random crops already
# vary.
MIN_PADDED_CROP_EPOCHS = 10
MIN_RANDOM_CROP_EPOCHS = 12
LABEL_SMOOTHING = 0.1
MIN_SMOOTHED_EPOCHS: Mapping[type[LabelKind], float] = {
    OnePerImage: 15,
    SetsPerImage: math.inf,  # it would make rare categories likelier
}
# In as few epochs as five the network does not overfit; without pretrained weights, CutMix slows it
# down even in 30.
CUTMIX = 0.5
MIN_CUTMIX_EPOCHS: Mapping[type[LabelKind], float] = {
    OnePerImage: 15,
    SetsPerImage: math.inf,  # a patch may hide one of the things in an image, whose label remains
}

SIDES = {"left", "right"}


def decide(
    model: ModelDirectory,
    common_size: Size | None,
    categories: Sequence[str] = (),
    epochs: int = TrainConfig.epochs,
    max_common_side: int = MAX_COMMON_SIDE,
    sizes: Mapping[Size, int] = MappingProxyType({}),
    labels: LabelKind = ONE_PER_IMAGE,
) -> tuple[OpenRecipe, str]:
    """Return the model's recipe with its open entries decided, and the reason for the image size.

    `common_size` is the (height, width) of nearly all images, None when they differ; `sizes` counts
    images by it. `categories`, `epochs`, `sizes` and `labels` matter for training only. Flips stay
    "auto" if the pixels have to decide (`pixel_decisions`).
    """
    recipe = model.recipe
    image_size, size_reason = _image_size(model, common_size, max_common_side)
    is_common = common_size == image_size and max(image_size) <= max_common_side
    augmentation = _augmentation(recipe, image_size, is_common, epochs)
    training_size = _training_size(model, image_size, augmentation)
    mean, std = _normalization(model)
    decided = OpenRecipe(
        image_size=image_size,
        training_size=training_size,
        early_size=_early_size(model, training_size, augmentation, epochs),
        crop_fraction=_crop_fraction(recipe, is_common),
        framing=_framing_mode(model, sizes, image_size),
        augmentation=augmentation,
        crop_area=recipe.crop_area,
        horizontal_flip=_horizontal_flip(recipe, categories),
        label_smoothing=_label_smoothing(recipe, is_common, epochs, labels),
        cutmix=_cutmix(model, categories, epochs, labels),
        balance_classes=recipe.balance_classes,
        freeze_backbone=recipe.freeze_backbone,
        background=recipe.background,
        white_level=recipe.white_level,
        optimizer=recipe.optimizer,
        precision=recipe.precision,
        deterministic=recipe.deterministic,
        mean=mean,
        std=std,
    )
    return decided, size_reason


def classifier_spec(
    model: ModelDirectory, categories: tuple[str, ...], decided: OpenRecipe
) -> ClassifierSpec:
    """Return what a classifier of these categories is, by the model and its decided recipe."""
    colours = Colours(decided.white_level or MAX_WHITE, decided.background)
    framing = Framing(*decided.image_size, decided.crop_fraction, decided.framing, colours)
    thresholds = model.thresholds if categories == model.categories else None
    return ClassifierSpec(
        model.architecture, model.option, categories, framing, decided.mean, decided.std, thresholds
    )


def _image_size(
    model: ModelDirectory, common_size: Size | None, max_common_side: int
) -> tuple[Size, str]:
    """Return the size of the images that the model predicts, and the reason for it."""
    family_side = family_of(model.architecture).image_size
    if family_side is not None:
        return _only_size(model, family_side)
    if model.recipe.image_size is not None:
        return sides(model.recipe.image_size), "the recipe says so"
    if common_size is None:
        return sides(DEFAULT_SIZE), "the images differ in size"
    if max(common_size) > max_common_side:
        return sides(DEFAULT_SIZE), "the images are larger"
    if min(common_size) < MIN_IMAGE_SIZE:
        return sides(DEFAULT_SIZE), f"the images have less than {MIN_IMAGE_SIZE} px on a side"
    return common_size, "the size of the images"


def _only_size(model: ModelDirectory, side: int) -> tuple[Size, str]:
    """Return the size of an architecture that has only one, and the reason.

    Raises `InvalidModelDirectoryError` if the recipe names another.
    """
    size = sides(side)
    reason = f"the only size of a {model.architecture}"
    others = model.recipe.sizes_other_than(size)
    if others:
        names = " and ".join(f"{name} {other}" for name, other in others.items())
        raise model.error(f"its recipe names {names}; {reason} is {side}.")
    return size, reason


def _augmentation(recipe: Recipe, size: Size, is_common: bool, epochs: int) -> Augmentation:
    """Return the crops of training images."""
    if recipe.augmentation != "auto":
        return recipe.augmentation
    if is_common:
        is_padded = min(size) >= MIN_PADDED_CROP_SIDE and epochs >= MIN_PADDED_CROP_EPOCHS
        return "padded-crop" if is_padded else "none"
    is_random = recipe.crop_area != Recipe.crop_area or epochs >= MIN_RANDOM_CROP_EPOCHS
    return "random-resized-crop" if is_random else "none"


def _training_size(model: ModelDirectory, size: Size, augmentation: Augmentation) -> Size:
    """Return the size of training images for a model that predicts images of `size`."""
    of_recipe = _size_of_recipe(model, "training_size", "image_size", size, "predicted")
    if of_recipe:
        return of_recipe
    fraction = max(TRAINING_FRACTION, MIN_TRAINING_SIDE / min(size))
    is_random_crop = augmentation == "random-resized-crop"
    if not family_of(model.architecture).is_convolutional or not is_random_crop or fraction >= 1:
        return size
    height, width = (min(side, _round_side(side * fraction)) for side in size)
    early = model.recipe.early_size
    if early is not None and fits_into(early, size):
        early_height, early_width = sides(early)
        height = max(height, early_height)
        width = max(width, early_width)
    return height, width


def _early_size(
    model: ModelDirectory, training_size: Size, augmentation: Augmentation, epochs: int
) -> Size:
    """Return the size of training images before the last epochs."""
    of_recipe = _size_of_recipe(model, "early_size", "training_size", training_size, "trained")
    if of_recipe:
        return of_recipe
    is_shrunk = (
        1 < epochs < MIN_RANDOM_CROP_EPOCHS
        and augmentation == "none"
        and not (model.is_pretrained or model.is_trained)
        and model.recipe.training_size is None
        and family_of(model.architecture).is_convolutional
        and min(training_size) >= MIN_SHRUNK_SIDE
    )
    if not is_shrunk:
        return training_size
    height, width = training_size
    return _round_side(height * EARLY_FRACTION), _round_side(width * EARLY_FRACTION)


def _size_of_recipe(
    model: ModelDirectory, entry: str, larger: str, size: Size, use: str
) -> Size | None:
    """Return the size in an entry of the recipe; None if there is none.

    Raises `InvalidModelDirectoryError` if it exceeds `size`, that of the entry `larger`.
    """
    named: int | Size | None = getattr(model.recipe, entry)
    if named is None:
        return None
    if not fits_into(named, size):
        raise model.error(
            f"its recipe names {entry} {named}; images are {use} at {size[0]} x {size[1]} px.",
            f"{with_init_model('In init-model, give', 'Give')} a larger {parameter(larger)}, or a"
            f" smaller {parameter(entry)}, or neither.",
        )
    return sides(named)


def _round_side(side: float) -> int:
    """Return the nearest multiple of `SIDE_MULTIPLE`."""
    return round(side / SIDE_MULTIPLE) * SIDE_MULTIPLE


def _crop_fraction(recipe: Recipe, is_common: bool) -> float:
    if recipe.crop_fraction is not None:
        return recipe.crop_fraction
    return 1.0 if is_common else DEFAULT_CROP_FRACTION


def _framing_mode(model: ModelDirectory, sizes: Mapping[Size, int], size: Size) -> FramingMode:
    """Return how images are brought to `size`; a model that says nothing was trained on crops."""
    if model.recipe.framing != "auto":
        return model.recipe.framing
    if model.is_trained:
        return "crop"
    height, width = size
    aspect = width / height
    elongated = 0
    for (image_height, image_width), count in sizes.items():
        ratio = image_width / image_height / aspect
        if max(ratio, 1 / ratio) >= ELONGATED:
            elongated += count
    return "pad" if elongated > MAX_ELONGATED_FRACTION * sum(sizes.values()) else "crop"


def _horizontal_flip(recipe: Recipe, categories: Sequence[str]) -> Literal["auto"] | bool:
    if recipe.horizontal_flip == "auto" and flips_change_meaning(categories):
        return False
    return recipe.horizontal_flip


def _label_smoothing(recipe: Recipe, is_common: bool, epochs: int, labels: LabelKind) -> float:
    if recipe.label_smoothing is not None:
        return recipe.label_smoothing
    is_smoothed = is_common and epochs >= MIN_SMOOTHED_EPOCHS[type(labels)]
    return LABEL_SMOOTHING if is_smoothed else 0.0


def _cutmix(
    model: ModelDirectory, categories: Sequence[str], epochs: int, labels: LabelKind
) -> float:
    """Return the fraction of training steps with CutMix."""
    recipe = model.recipe
    if recipe.cutmix is not None:
        return recipe.cutmix
    is_long = epochs >= MIN_CUTMIX_EPOCHS[type(labels)] and not recipe.freeze_backbone
    return CUTMIX if is_long and model.is_fine_tuned_for(categories) else 0.0


def _normalization(model: ModelDirectory) -> tuple[Triple, Triple]:
    """Return the mean and the standard deviation of pixels in [0, 1]."""
    mean = model.recipe.mean or model.mean
    std = model.recipe.std or model.std
    if mean is not None and std is not None:
        return mean, std
    if model.is_pretrained:
        return IMAGENET_MEAN, IMAGENET_STD
    half = (0.5, 0.5, 0.5)
    return half, half


def describe_framing(framing: Framing, sizes: Mapping[Size, int]) -> str:
    """Return how much of images of these sizes is seen, as the end of a sentence.

    It is empty if that is all of all images.
    """
    if framing.mode == "pad":
        return "; whole images, padded"
    if framing.mode == "squash":
        return "; whole images, squashed"
    visible = sum(framing.seen(*size) * count for size, count in sizes.items())
    fraction = visible / max(1, sum(sizes.values()))
    if not 0 < fraction < NEARLY_ALL:
        return ""
    return f"; centre crops show {fraction:.0%} of an image"


def is_early(epoch: int, epochs: int) -> bool:
    """Return whether an epoch, counted from 1, uses the early size.

    The last epochs use the training size.
    """
    return epoch <= epochs - max(1, round(FULL_SIZE_FRACTION * epochs))


def flips_change_meaning(categories: Sequence[str]) -> bool:
    """Return whether names, such as digits or `left`, say that mirroring changes a category."""
    words = {word for name in categories for word in re.split(r"[\W\d_]+", name.casefold())}
    are_characters = bool(categories) and all(len(name) == 1 for name in categories)
    return bool(words & SIDES) or are_characters
