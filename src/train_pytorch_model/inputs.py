"""The three inputs and the output of a training run, opened and checked against each other, without torch."""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config import TrainConfig
from train_pytorch_model.errors import (
    MAX_LISTED_PROBLEMS,
    InvalidDatasetError,
    ParameterError,
    listed,
)
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.model_directory import (
    SPEC,
    ModelDirectory,
    open_model_directory,
    renamed_by_type_inference,
)
from train_pytorch_model.image_check import BadImage, read_headers, without_bad_images
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.image_classifier.preprocessing import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Framing,
)
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.recipe import MAX_IMAGE_SIZE, MIN_IMAGE_SIZE, Recipe

MAX_COMMON_SIDE = 320  # px; larger images of one size are a camera's, not "already transformed"
DEFAULT_SIZE = 224
DEFAULT_CROP_FRACTION = 0.875
# Objects look larger in random crops than in whole images. Trained on smaller crops, a network sees them at
# one size in both, and a step costs less (Touvron et al. 2019). torchvision trains its own weights at 176 px
# for 224. Small images lose by it: measured at 64 px.
TRAINING_SHARE = 176 / 224
MIN_SHRUNK_SIDE = 224
SIDE_MULTIPLE = 16  # networks halve the side four times or more: others waste computing on padding
MIN_PADDED_CROP_SIDE = 32
# In fewer epochs the network does not memorise the images, and what prevents that only slows it. Measured at
# 5, 10 and 30 epochs; smoothing at 5 and 30: on photographs, which random crops keep new, it costs.
MIN_PADDED_CROP_EPOCHS = 10
MIN_SMOOTHED_EPOCHS = 15
LABEL_SMOOTHING = 0.1

SIDES = {"left", "right"}

IMBALANCE = 10  # times as many images as another category: the rare one is hardly learned
FEW_TRAINING_IMAGES = 100  # of a category on average; fewer teach a network little from scratch

UNTRAINED_MODEL = "Untrained model"
TRAINING_DATASET = "Training dataset"
VALIDATION_DATASET = "Validation dataset"
TRAINED_MODEL = "Trained model"
DATASET = "Dataset"

EVALUATION_LABELS_HINT = (
    "Evaluation needs a category for every image: one folder per category, or a labelled ImageDirectory."
)


@dataclass(frozen=True)
class TrainingInputs:
    """What a run trains on. Both datasets have the categories of the training dataset, in its order."""

    model: ModelDirectory
    training: ImageDirectory
    validation: ImageDirectory
    recipe: Recipe
    """With every entry decided that the data decide, flips by `chirality`."""
    spec: ClassifierSpec
    """Of the model that comes out."""
    size_reason: str
    bad_images: tuple[BadImage, ...]
    warnings: tuple[str, ...]
    flip_reason: str = ""
    """What the images have that forbids to mirror them, where they were looked at."""

    @property
    def categories(self) -> tuple[str, ...]:
        return self.training.categories

    @property
    def framing(self) -> Framing:
        """Of validation, and of all that the model predicts."""
        return self.spec.framing

    @property
    def training_framing(self) -> Framing:
        """Of training."""
        assert isinstance(self.recipe.training_size, tuple)
        height, width = self.recipe.training_size
        return replace(self.spec.framing, height=height, width=width)

    def fingerprint(self, config: TrainConfig) -> dict[str, str]:
        """What makes this run this run: parameters, sha256 of the model and of both lists of images."""
        model = hashlib.sha256((self.model.root / SPEC).read_bytes())
        with self.model.weights_path.open("rb") as file:
            model.update(hashlib.file_digest(file, "sha256").digest())
        return {
            "parameters": " ".join(f"{flag} {value}" for flag, value in config.as_flags().items()),
            "untrained_model": model.hexdigest(),
            "training_dataset": self.training.fingerprint(),
            "validation_dataset": self.validation.fingerprint(),
        }


def open_training_inputs(
    untrained_model: Path, training_dataset: Path, validation_dataset: Path, epochs: int = TrainConfig.epochs
) -> TrainingInputs:
    """Open all three; how many `epochs` are trained has a say in the augmentation.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    model = open_model_directory(untrained_model, UNTRAINED_MODEL)
    training, validation = open_training_datasets(training_dataset, validation_dataset)

    headers = read_headers(training)
    training, bad_training = without_bad_images(training, headers.bad)
    validation, bad_validation = without_bad_images(validation, read_headers(validation).bad)
    bad_images = (*bad_training, *bad_validation)
    recipe, size_reason = decide(model, headers.common_size, training.categories, epochs)
    return TrainingInputs(
        model=model,
        training=training,
        validation=validation,
        recipe=recipe,
        spec=_classifier_spec(model, training.categories, recipe),
        size_reason=size_reason,
        bad_images=bad_images,
        warnings=(
            *_data_warnings(training),
            *_learning_warnings(training, model, recipe),
            *_data_warnings(validation),
        ),
    )


def open_training_datasets(
    training_dataset: Path, validation_dataset: Path
) -> tuple[ImageDirectory, ImageDirectory]:
    """Both, labelled, with the categories of the training dataset, in its order.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    training = open_image_directory(training_dataset, TRAINING_DATASET)
    validation = open_image_directory(validation_dataset, VALIDATION_DATASET)
    for directory in (training, validation):
        directory.require_labels()
    _check_categories(training, validation)
    return training, validation.with_categories(training.categories)


@dataclass(frozen=True)
class ScoringInputs:
    """What is scored, and by what."""

    model: ModelDirectory
    images: ImageDirectory
    spec: ClassifierSpec
    size_reason: str
    bad_images: tuple[BadImage, ...]


def open_scoring_inputs(trained_model: Path, dataset: Path) -> ScoringInputs:
    """Open both. Raises `InvalidModelDirectoryError`, `InvalidDatasetError`."""
    return _scoring_inputs(_open_trained(trained_model), open_image_directory(dataset, DATASET))


def open_evaluation_inputs(trained_model: Path, dataset: Path) -> tuple[ScoringInputs, list[str]]:
    """Open both; the images have the categories of the model, in its order. Also what to warn of.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    model = _open_trained(trained_model)
    images = open_image_directory(dataset, DATASET)
    images.require_labels(EVALUATION_LABELS_HINT)
    unknown = _only(images.categories, model.categories)
    if unknown:
        raise InvalidDatasetError(
            images.title,
            f"the model does not know {len(unknown)} of its categories:{listed(unknown)}",
            f"\nThe model knows:{listed([repr(name) for name in model.categories])}",
        )
    images = images.with_categories(model.categories)
    return _scoring_inputs(model, images), _data_warnings(images)


def open_trained_model(trained_model: Path, image_size: int | None) -> tuple[ModelDirectory, ClassifierSpec]:
    """A trained directory without images; `image_size` is for one that does not tell its own.

    Raises `InvalidModelDirectoryError`, `ParameterError`.
    """
    if image_size is not None and not MIN_IMAGE_SIZE <= image_size <= MAX_IMAGE_SIZE:
        raise ParameterError(
            f"--image-size should be from {MIN_IMAGE_SIZE} to {MAX_IMAGE_SIZE}; it is {image_size}."
        )
    model = _open_trained(trained_model)
    known = model.recipe.image_size or FAMILY_OF[model.architecture].image_size
    if known is None and image_size is None:
        raise ParameterError(
            f"{model.port} {model.root} does not tell the size of its images, as the designer's do not."
            " Give it: --image-size."
        )
    if known is not None and image_size is not None and known not in (image_size, (image_size, image_size)):
        raise ParameterError(f"--image-size is {image_size}; the model's is {known}.")
    size = (image_size, image_size) if known is None and image_size else None
    recipe, _ = decide(model, size, max_common_side=MAX_IMAGE_SIZE)
    return model, _classifier_spec(model, model.categories, recipe)


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
    size: tuple[int, int]
    if fixed_side is not None:
        size, reason = (fixed_side, fixed_side), f"the only size of a {model.architecture}"
        is_common = common_size == size
        if recipe.image_size not in (None, fixed_side, size):
            raise model.error(f"its recipe names image_size {recipe.image_size}; {reason} is {fixed_side}.")
    elif recipe.image_size is not None:
        side = recipe.image_size
        size, is_common = (side, side) if isinstance(side, int) else side, False
        reason = "the recipe says so"
    elif common_size is not None and max(common_size) <= max_common_side:
        size, reason, is_common = common_size, "the size of the images", True
    else:
        size, is_common = (DEFAULT_SIZE, DEFAULT_SIZE), False
        reason = "the images differ in size" if common_size is None else "the images are larger"
    augmentation = recipe.augmentation
    if augmentation == "auto" and not is_common:
        augmentation = "random-resized-crop"
    elif augmentation == "auto":
        pays = min(size) >= MIN_PADDED_CROP_SIDE and epochs >= MIN_PADDED_CROP_EPOCHS
        augmentation = "padded-crop" if pays else "none"
    smoothing = recipe.label_smoothing
    if smoothing is None:
        smoothing = LABEL_SMOOTHING if is_common and epochs >= MIN_SMOOTHED_EPOCHS else 0.0
    mean, std = recipe.mean or model.mean, recipe.std or model.std
    if mean is None or std is None:
        half = (0.5, 0.5, 0.5)
        mean, std = (IMAGENET_MEAN, IMAGENET_STD) if model.is_pretrained else (half, half)
    not_by_name = recipe.horizontal_flip == "auto" and flips_change_meaning(categories)
    decided = replace(
        recipe,
        image_size=size,
        training_size=_training_size(model, size, augmentation),
        crop_fraction=recipe.crop_fraction or (1.0 if is_common else DEFAULT_CROP_FRACTION),
        augmentation=augmentation,
        horizontal_flip=False if not_by_name else recipe.horizontal_flip,
        label_smoothing=smoothing,
        mean=mean,
        std=std,
    )
    return decided, reason


def _training_size(model: ModelDirectory, size: tuple[int, int], augmentation: str) -> tuple[int, int]:
    """(height, width) of training images for a model that predicts images of `size`."""
    family, asked = FAMILY_OF[model.architecture], model.recipe.training_size
    if asked is not None:
        training_size = (asked, asked) if isinstance(asked, int) else asked
        if family.image_size is not None and training_size != size:
            raise model.error(
                f"its recipe names training_size {asked}; the only size of a {model.architecture} is"
                f" {family.image_size}."
            )
        if training_size[0] > size[0] or training_size[1] > size[1]:
            raise model.error(
                f"its recipe names training_size {asked}; images are predicted at {size[0]} x {size[1]} px.",
                "Name a --training-size of that or less in init-model, or none.",
            )
        return training_size
    is_random_crop = augmentation == "random-resized-crop"
    if not family.is_convolutional or not is_random_crop or min(size) < MIN_SHRUNK_SIDE:
        return size
    height, width = (round(side * TRAINING_SHARE / SIDE_MULTIPLE) * SIDE_MULTIPLE for side in size)
    return height, width


def flips_change_meaning(categories: Sequence[str]) -> bool:
    """Whether mirrored images are of another category, or of none, as far as names tell.

    That is so for digits and letters, each of one character, and where left or right is in a name.
    """
    if not categories:
        return False
    words = {word for name in categories for word in re.split(r"[\W\d_]+", name.casefold())}
    return not words.isdisjoint(SIDES) or all(len(name) == 1 for name in categories)


def _open_trained(path: Path) -> ModelDirectory:
    model = open_model_directory(path, TRAINED_MODEL)
    if not model.is_trained:
        raise model.error(
            f"it is not trained: {SPEC} names no label_map_file.", "Train it first, with `train`."
        )
    return model


def _scoring_inputs(model: ModelDirectory, images: ImageDirectory) -> ScoringInputs:
    headers = read_headers(images)
    images, bad_images = without_bad_images(images, headers.bad)
    # A directory of the designer does not tell its size: the designer scores images at their own.
    recipe, size_reason = decide(model, headers.common_size, max_common_side=MAX_IMAGE_SIZE)
    return ScoringInputs(
        model=model,
        images=images,
        spec=_classifier_spec(model, model.categories, recipe),
        size_reason=size_reason,
        bad_images=tuple(bad_images),
    )


def _classifier_spec(model: ModelDirectory, categories: tuple[str, ...], decided: Recipe) -> ClassifierSpec:
    assert isinstance(decided.image_size, tuple)
    assert decided.crop_fraction is not None
    assert decided.mean is not None
    assert decided.std is not None
    return ClassifierSpec(
        architecture=model.architecture,
        option=model.option,
        categories=categories,
        framing=Framing(*decided.image_size, decided.crop_fraction),
        mean=decided.mean,
        std=decided.std,
    )


def _check_categories(training: ImageDirectory, validation: ImageDirectory) -> None:
    if len(training.categories) < 2:
        raise InvalidDatasetError(
            training.title,
            f"it has one category, {training.categories[0]!r}.",
            "A classifier needs at least two.",
        )
    only_training = _only(training.categories, validation.categories)
    only_validation = _only(validation.categories, training.categories)
    if only_training or only_validation:
        raise InvalidDatasetError(
            validation.title,
            "its categories are not those of the training dataset."
            + (f"\nOnly in training:{listed(only_training)}" if only_training else "")
            + (f"\nOnly in validation:{listed(only_validation)}" if only_validation else ""),
            "\nBoth need the same category names.",
        )


def _only(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names, quoted, that are not among the others."""
    known = set(others)
    return [repr(name) for name in names if name not in known]


def imbalance(counts: np.ndarray, recipe: Recipe) -> str:
    """What to know of categories that differ much in size; empty where nothing is to be done.

    `counts` (number of categories,) are the training images of each.
    """
    counts = counts[counts > 0]
    if len(counts) == 0 or counts.max() < IMBALANCE * counts.min() or recipe.balance_classes:
        return ""
    return (
        f"The largest category has {counts.max() / counts.min():,.0f} times as many training images as the"
        " smallest. `init-model --balance-classes` learns to tell the rare ones as well."
    )


def _learning_warnings(training: ImageDirectory, model: ModelDirectory, recipe: Recipe) -> list[str]:
    """What to know of training images from which less will be learned than could be."""
    warnings = []
    if uneven := imbalance(training.class_counts(), recipe):
        warnings.append(uneven)
    average = len(training) / len(training.categories)
    if average < FEW_TRAINING_IMAGES and not (model.is_pretrained or model.is_trained):
        warnings.append(
            f"Training images of a category: {average:.0f} on average, few to train from scratch. Pretrained"
            " weights need far fewer: `init-model --pretrained`, or `--weights-file`."
        )
    return warnings


def _data_warnings(directory: ImageDirectory) -> list[str]:
    warnings = directory.warnings()
    suspects = renamed_by_type_inference(directory.categories)
    if suspects and directory.port == TRAINING_DATASET:
        warnings.append(
            "the designer's Score Image Model takes these category names for numbers or missing values:"
            f" {', '.join(suspects[:MAX_LISTED_PROBLEMS])}"
        )
    return warnings
