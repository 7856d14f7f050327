"""Decide from the data what a recipe leaves open: sizes, crops, flips, smoothing, normalization."""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from train_pytorch_model.config import train_config
from train_pytorch_model.config.recipe import MIN_IMAGE_SIZE, OpenRecipe, Recipe, fits_into, sides
from train_pytorch_model.config.wording import parameter, worded
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.image_classifier import spec
from train_pytorch_model.image_classifier.architectures import family_of
from train_pytorch_model.image_classifier.spec import Framing, FramingMode

MAX_COMMON_SIDE = (
    320  # px; larger images of a common size come from a camera, not from preprocessing
)
DEFAULT_SIZE = 224
DEFAULT_CROP_FRACTION = 0.875
# Objects appear larger in random crops than in whole images. Training on smaller crops makes the
# sizes match, and steps cheaper (Touvron et al. 2019). torchvision trains its own weights at 176 px
# for 224. Small images lose accuracy this way: measured at 64 and 128 px.
TRAINING_SHARE = 176 / 224
MIN_TRAINING_SIDE = 176
SIDE_MULTIPLE = (
    16  # networks halve the side four times or more: other sides waste computation on padding
)
# Progressive resizing: the network learns faster from smaller images, at a third of the
# computation, and the last epochs adapt it to the size of its predictions. Not for weights trained
# at one resolution, which would have to adapt to two. Not in long runs: without crops they overfit,
# and early stopping may end them before the last epochs.
EARLY_SHARE = 128 / 224
MIN_SHRUNK_SIDE = 176
FULL_SIZE_SHARE = 1 / 5  # of the epochs, at the end of the run
# A centre crop hides half of an image that is twice as long as the model's input, or more.
# Photographs, up to 16:9, are cropped: objects in them are larger then, and mostly in the middle.
ELONGATED = 2.0  # ratio of the aspect ratios
ELONGATED_SHARE = 0.2  # of the images; of more, all are padded
NEARLY_ALL = 0.995  # of an image's area: not worth a word
MIN_PADDED_CROP_SIDE = 32
# In fewer epochs the network does not overfit, and regularization only slows it down. Measured at
# 5, 10 and 30 epochs. Random crops, also measured at 15, cost accuracy at 10 epochs and add to it
# at 15. Smoothing, measured at 5 and 30, costs accuracy on photographs, which random crops already
# vary.
MIN_PADDED_CROP_EPOCHS = 10
MIN_RANDOM_CROP_EPOCHS = 12
MIN_SMOOTHED_EPOCHS = 15
LABEL_SMOOTHING = 0.1
# In as few epochs as five the network does not overfit; without pretrained weights, CutMix slows it
# down even in 30.
MIN_CUTMIX_EPOCHS = 15
CUTMIX = 0.5

SIDES = {"left", "right"}


def decide(
    model: ModelDirectory,
    common_size: tuple[int, int] | None,
    categories: Sequence[str] = (),
    epochs: int = train_config.TrainConfig.epochs,
    max_common_side: int = MAX_COMMON_SIDE,
    sizes: Mapping[tuple[int, int], int] = MappingProxyType({}),
) -> tuple[OpenRecipe, str]:
    """The model's recipe with sizes, augmentation and normalization decided, and the reason for the
    size.

    `common_size` is the (height, width) of nearly all images, None when they differ; `sizes` counts
    images by it. `categories`, `epochs` and `sizes` matter for training only. Flips stay "auto" if
    the pixels have to decide (`pixel_decisions`).
    """
    recipe = model.recipe
    size, reason = _image_size(model, common_size, max_common_side)
    is_common = common_size == size and max(size) <= max_common_side
    augmentation, smoothing, cutmix = recipe.augmentation, recipe.label_smoothing, recipe.cutmix
    if augmentation == "auto" and is_common:
        is_varied = min(size) >= MIN_PADDED_CROP_SIDE and epochs >= MIN_PADDED_CROP_EPOCHS
        augmentation = "padded-crop" if is_varied else "none"
    elif augmentation == "auto":
        is_varied = recipe.crop_area != Recipe.crop_area or epochs >= MIN_RANDOM_CROP_EPOCHS
        augmentation = "random-resized-crop" if is_varied else "none"
    if smoothing is None:
        smoothing = LABEL_SMOOTHING if is_common and epochs >= MIN_SMOOTHED_EPOCHS else 0.0
    if cutmix is None:
        is_long = epochs >= MIN_CUTMIX_EPOCHS and not recipe.freeze_backbone
        cutmix = CUTMIX if is_long and model.is_fine_tuned_for(categories) else 0.0
    mean, std = recipe.mean or model.mean, recipe.std or model.std
    if mean is None or std is None:
        imagenet, half = (spec.IMAGENET_MEAN, spec.IMAGENET_STD), (0.5, 0.5, 0.5)
        mean, std = imagenet if model.is_pretrained else (half, half)
    not_by_name = recipe.horizontal_flip == "auto" and flips_change_meaning(categories)
    training_size = _training_size(model, size, augmentation)
    decided = {
        "image_size": size,
        "training_size": training_size,
        "early_size": _early_size(model, training_size, augmentation, epochs),
        "crop_fraction": recipe.crop_fraction or (1.0 if is_common else DEFAULT_CROP_FRACTION),
        "framing": _mode(model, sizes, size),
        "augmentation": augmentation,
        "horizontal_flip": False if not_by_name else recipe.horizontal_flip,
        "label_smoothing": smoothing,
        "cutmix": cutmix,
        "mean": mean,
        "std": std,
    }
    return OpenRecipe(**vars(recipe) | decided), reason


def _image_size(
    model: ModelDirectory, common_size: tuple[int, int] | None, max_common_side: int
) -> tuple[tuple[int, int], str]:
    """(height, width) of the images that the model predicts, and the reason for it."""
    recipe = model.recipe
    fixed_side = family_of(model.architecture).image_size
    if fixed_side is not None:
        size, reason = sides(fixed_side), f"the only size of a {model.architecture}"
        if others := recipe.sizes_other_than(size):
            names = " and ".join(f"{name} {side}" for name, side in others.items())
            raise model.error(f"its recipe names {names}; {reason} is {fixed_side}.")
        return size, reason
    if recipe.image_size is not None:
        return sides(recipe.image_size), "the recipe says so"
    if common_size is None:
        return sides(DEFAULT_SIZE), "the images differ in size"
    if max(common_size) > max_common_side:
        return sides(DEFAULT_SIZE), "the images are larger"
    if min(common_size) < MIN_IMAGE_SIZE:
        return sides(DEFAULT_SIZE), f"the images have less than {MIN_IMAGE_SIZE} px on a side"
    return common_size, "the size of the images"


def _mode(
    model: ModelDirectory, sizes: Mapping[tuple[int, int], int], size: tuple[int, int]
) -> FramingMode:
    """How images are brought to `size`; a model that says nothing was trained on crops."""
    if model.recipe.framing != "auto":
        return model.recipe.framing
    if model.is_trained:
        return "crop"
    aspect = size[1] / size[0]
    ratios = {image: image[1] / image[0] / aspect for image in sizes}
    elongated = sum(
        sizes[image] for image, ratio in ratios.items() if max(ratio, 1 / ratio) >= ELONGATED
    )
    return "pad" if elongated > ELONGATED_SHARE * sum(sizes.values()) else "crop"


def share_shown(framing: Framing, sizes: Mapping[tuple[int, int], int]) -> str:
    """What a framing shows of images of these sizes, as the end of a sentence; empty if all of all."""
    if framing.mode != "crop":
        return f"; whole images, {'padded' if framing.mode == 'pad' else 'squashed'}"
    shown = sum(framing.seen(*size) * count for size, count in sizes.items()) / max(
        1, sum(sizes.values())
    )
    return f"; centre crops show {shown:.0%} of an image" if 0 < shown < NEARLY_ALL else ""


def _training_size(
    model: ModelDirectory, size: tuple[int, int], augmentation: str
) -> tuple[int, int]:
    """(height, width) of training images for a model that predicts images of `size`."""
    if asked := _size_asked_for(model, "training_size", "image_size", size, "predicted"):
        return asked
    fraction = max(TRAINING_SHARE, MIN_TRAINING_SIDE / min(size))
    is_random_crop = augmentation == "random-resized-crop"
    if not family_of(model.architecture).is_convolutional or not is_random_crop or fraction >= 1:
        return size
    height, width = (
        min(side, round(side * fraction / SIDE_MULTIPLE) * SIDE_MULTIPLE) for side in size
    )
    early = model.recipe.early_size
    if early is not None and fits_into(early, size):
        height, width = map(max, (height, width), sides(early))
    return height, width


def _early_size(
    model: ModelDirectory, training_size: tuple[int, int], augmentation: str, epochs: int
) -> tuple[int, int]:
    """(height, width) of training images before the last epochs."""
    if asked := _size_asked_for(model, "early_size", "training_size", training_size, "trained"):
        return asked
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
    height, width = (
        round(side * EARLY_SHARE / SIDE_MULTIPLE) * SIDE_MULTIPLE for side in training_size
    )
    return height, width


def _size_asked_for(
    model: ModelDirectory, entry: str, larger: str, size: tuple[int, int], used: str
) -> tuple[int, int] | None:
    """The size in an entry of the recipe, which should fit into `size`, that of its entry `larger`."""
    asked: int | tuple[int, int] | None = getattr(model.recipe, entry)
    if asked is None:
        return None
    if not fits_into(asked, size):
        raise model.error(
            f"its recipe names {entry} {asked}; images are {used} at {size[0]} x {size[1]} px.",
            f"{worded('In init-model, give', 'Give')} a larger {parameter(larger)}, or a smaller"
            f" {parameter(entry)}, or neither.",
        )
    return sides(asked)


def is_early(epoch: int, epochs: int) -> bool:
    """Whether an epoch, counted from 1, uses the early size; the last epochs use the training size."""
    return epoch <= epochs - max(1, round(FULL_SIZE_SHARE * epochs))


def flips_change_meaning(categories: Sequence[str]) -> bool:
    """Whether names, such as digits, letters, left or right, say that mirroring changes a category."""
    words = {word for name in categories for word in re.split(r"[\W\d_]+", name.casefold())}
    return bool(words & SIDES) or (bool(categories) and all(len(name) == 1 for name in categories))
