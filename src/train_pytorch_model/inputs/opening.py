"""The inputs of training, scoring and evaluation, opened and checked against each other, without
torch.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config import wording
from train_pytorch_model.config.recipe import (
    MAX_IMAGE_SIZE,
    MIN_IMAGE_SIZE,
    DecidedRecipe,
    OpenRecipe,
    sides,
)
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import bulleted, counted, parameter, worded
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats import image_directory, listing
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.label_table import open_labelled
from train_pytorch_model.formats.model_directory import SPEC, ModelDirectory, open_model_directory
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError
from train_pytorch_model.image_classifier.architectures import family_of
from train_pytorch_model.image_classifier.decoding import MAX_WHITE, Colours
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.inputs import advice
from train_pytorch_model.inputs.decide import decide, describe_framing, is_early
from train_pytorch_model.inputs.headers import read_headers
from train_pytorch_model.inputs.unreadable_images import UnreadableImage, without_unreadable_images
from train_pytorch_model.quality.identical_files import IdenticalFiles, find_identical

UNTRAINED_MODEL = "Untrained model"
TRAINING_DATASET = "Training dataset"
VALIDATION_DATASET = "Validation dataset"
TRAINED_MODEL = "Trained model"
DATASET = "Dataset"

TRAINED_HINT = "Name a directory that `train`, `fit` or the designer has written; weights alone have no categories."
EVALUATION_LABELS_HINT = "Evaluation needs a category for every image: one folder per category, or a labelled ImageDirectory."


@dataclass(frozen=True)
class OpenedInputs:
    """The inputs of a training run. Both datasets have the training dataset's categories, in its
    order."""

    model: ModelDirectory
    training: ImageDirectory
    validation: ImageDirectory
    recipe: OpenRecipe
    spec: ClassifierSpec
    size_reason: str
    unreadable_images: tuple[UnreadableImage, ...]
    identical: IdenticalFiles
    warnings: tuple[str, ...]
    test: ImageDirectory | None = None  # of the same folder, kept for a test of the trained model
    made_by: str = (
        ""  # sha256 of the options by which `fit` makes the untrained model when it needs it
    )

    @property
    def categories(self) -> tuple[str, ...]:
        return self.training.categories

    @property
    def framing(self) -> Framing:
        """Framing of validation images, and of all images that the model predicts."""
        return self.spec.framing

    @property
    def training_framing(self) -> Framing:
        """Framing of training images in the last epochs, when they are largest."""
        return self._framing_at(self.recipe.training_size)

    def training_framings(self, epochs: int) -> list[Framing]:
        """Framing of training images in each of `epochs` epochs."""
        early, late = self._framing_at(self.recipe.early_size), self.training_framing
        return [early if is_early(epoch, epochs) else late for epoch in range(1, epochs + 1)]

    def _framing_at(self, size: tuple[int, int]) -> Framing:
        height, width = size
        return replace(self.spec.framing, height=height, width=width)

    def fingerprint(self, config: TrainConfig) -> dict[str, str]:
        """The run's identity: parameters, decided recipe, and the sha256 of the model and of each
        image list.

        A model that `fit` makes again, at another time or on another machine, is identified by its
        options. Excludes flips and white: they are decided later, from the pixels.
        """
        recipe = {
            wording.flag(name): ",".join(map(str, value)) if isinstance(value, tuple) else value
            for name, value in asdict(self.recipe).items()
            if name not in ("horizontal_flip", "white_level")
        }
        return {
            "parameters": " ".join(f"{name} {value}" for name, value in config.as_flags().items()),
            "recipe": " ".join(f"{name} {value}" for name, value in recipe.items()),
            "untrained_model": self.made_by or self.model.sha256,
            "training_dataset": self.training.fingerprint(),
            "validation_dataset": self.validation.fingerprint(),
        }

    def with_white_level(self, white_level: int) -> "OpenedInputs":
        """The same inputs, in which this value of 16-bit images is white."""
        framing = replace(
            self.framing, colours=self.framing.colours._replace(white_level=white_level)
        )
        return replace(self, spec=replace(self.spec, framing=framing))

    def with_flips(self, horizontal_flip: bool, reason: str = "") -> "TrainingInputs":
        """The inputs to train with: whether images are mirrored is the last entry to be decided."""
        last = {"horizontal_flip": horizontal_flip, "white_level": self.framing.colours.white_level}
        recipe = DecidedRecipe(**vars(self.recipe) | last)
        return TrainingInputs(**vars(self) | {"recipe": recipe, "flip_reason": reason})


@dataclass(frozen=True)
class TrainingInputs(OpenedInputs):
    """Inputs to train with: nothing in their recipe is open."""

    recipe: DecidedRecipe
    flip_reason: str = (
        ""  # why `pixel_decisions` found that the images must not be mirrored; empty otherwise
    )


def open_training_inputs(
    untrained_model: Path,
    training_dataset: Path,
    validation_dataset: Path,
    epochs: int = TrainConfig.epochs,
) -> OpenedInputs:
    """Open all three; the number of `epochs` influences sizes, augmentation and label smoothing.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    model = open_model_directory(untrained_model, UNTRAINED_MODEL)
    return training_inputs(
        model, *open_training_datasets(training_dataset, validation_dataset), epochs
    )


def training_inputs(
    model: ModelDirectory, training: ImageDirectory, validation: ImageDirectory, epochs: int
) -> OpenedInputs:
    """Check headers, and decide what can be.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`.
    """
    headers = read_headers(training)
    training, unreadable_training = without_unreadable_images(training, headers.unreadable)
    validation, unreadable_validation = without_unreadable_images(
        validation, read_headers(validation).unreadable
    )
    identical = find_identical(training, validation)
    recipe, size_reason = decide(
        model, headers.common_size, training.categories, epochs, sizes=headers.sizes
    )
    spec = _classifier_spec(model, training.categories, recipe)
    return OpenedInputs(
        model=model,
        training=training,
        validation=validation,
        recipe=recipe,
        spec=spec,
        size_reason=size_reason + describe_framing(spec.framing, headers.sizes),
        unreadable_images=(*unreadable_training, *unreadable_validation),
        identical=identical,
        warnings=(
            *training.warnings(),
            *advice.naming_warnings(training.categories),
            *advice.learning_warnings(training.class_counts(), model, recipe.image_size),
            *validation.warnings(),
            *advice.sameness_warnings(training, validation, identical),
        ),
    )


def open_training_datasets(
    training_dataset: Path, validation: Path
) -> tuple[ImageDirectory, ImageDirectory]:
    """Open both, `with_same_categories`. Raises `InvalidDatasetError`, `NotLabeledDatasetError`."""
    training = open_image_directory(training_dataset, TRAINING_DATASET)
    return with_same_categories(training, open_image_directory(validation, VALIDATION_DATASET))


def with_same_categories(
    training: ImageDirectory, validation: ImageDirectory
) -> tuple[ImageDirectory, ImageDirectory]:
    """Both, with the training categories.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    for directory in (training, validation):
        directory.require_labels()
    with_images = [training.categories[index] for index in np.flatnonzero(training.class_counts())]
    if len(with_images) < 2:
        empty = len(training.categories) - 1
        others = f", with images; {counted(empty, 'other is', 'others are')} empty" if empty else ""
        reason = f"it has one category, {with_images[0]!r}{others}."
        raise InvalidDatasetError(training.title, reason, "A classifier needs at least two.")
    only_training = _only(training.categories, validation.categories)
    only_validation = _only(validation.categories, training.categories)
    if only_training or only_validation:
        raise InvalidDatasetError(
            validation.title,
            "its categories are not those of the training dataset."
            + (f"\nOnly in training:{bulleted(only_training)}" if only_training else "")
            + (f"\nOnly in validation:{bulleted(only_validation)}" if only_validation else ""),
            "\nBoth need the same category names.",
        )
    return training, validation.with_categories(training.categories)


def _only(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """The names, quoted, that are not among `others`."""
    known = set(map(listing.comparable, others))
    return [repr(name) for name in names if listing.comparable(name) not in known]


@dataclass(frozen=True)
class ScoringInputs:
    """The model and the images of scoring or evaluation."""

    model: ModelDirectory
    images: ImageDirectory
    spec: ClassifierSpec
    size_reason: str
    unreadable_images: tuple[UnreadableImage, ...]
    warnings: tuple[str, ...]
    is_limited: bool  # whether only few images may be unreadable; for scoring, any number of them


def open_scoring_inputs(trained_model: Path, dataset: Path) -> ScoringInputs:
    """Open both. Raises `InvalidModelDirectoryError`, `InvalidDatasetError`."""
    model = open_trained(trained_model)
    images, warnings = open_images_at_any_depth(dataset, DATASET)
    inputs = _scoring_inputs(model, images, is_limited=False)
    return replace(inputs, warnings=(*warnings, *inputs.warnings))


def open_images_at_any_depth(path: Path, port: str) -> tuple[ImageDirectory, Sequence[str]]:
    """Open an image, or folders of any depth; return warnings, too.

    Raises `InvalidDatasetError`.
    """
    is_image = listing.suffix_of(path.name) in listing.SUFFIXES and os.path.isfile(path)
    if is_image and not (path.parent / META).exists():
        return images_of(listing.list_unlabelled([path.name], {}), path.parent, port), ()
    categories: Sequence[str] = ()
    try:
        images = open_image_directory(path, port)
        if not images.ignored.keys() & {listing.NESTED, listing.LOOSE}:
            return images, ()
        categories = images.categories
    except InvalidDatasetError:
        markers = (META, INCOMPLETE, image_directory.IMAGE_LIST)
        if not os.path.isdir(path) or any(os.path.exists(path / name) for name in markers):
            raise
    try:
        nested = images_of(listing.read_images_at_any_depth(path), path, port)
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{path}"', str(error)) from error
    if categories and all(name.count("/") == 1 for name in nested.file_names):
        return images, ()
    return nested, [
        f"{nested.title} has images at several depths: its folders are not taken for categories."
    ]


def open_evaluation_inputs(trained_model: Path, dataset: Path) -> ScoringInputs:
    """Open both; the images get the model's categories, in its order.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    return evaluation_inputs(open_trained(trained_model), open_labelled(dataset, DATASET))


def evaluation_inputs(model: ModelDirectory, images: ImageDirectory) -> ScoringInputs:
    """Like `open_evaluation_inputs`, of what is open already."""
    images.require_labels(EVALUATION_LABELS_HINT)
    if unknown := _only(images.categories, model.categories):
        raise InvalidDatasetError(
            images.title,
            f"the model does not know {len(unknown)} of its categories:{bulleted(unknown)}",
            f"\nThe model knows:{bulleted([repr(name) for name in model.categories])}",
        )
    inputs = _scoring_inputs(model, images.with_categories(model.categories), is_limited=True)
    return replace(
        inputs, warnings=(*inputs.warnings, *advice.familiarity_warnings(model, inputs.images))
    )


def _scoring_inputs(
    model: ModelDirectory, images: ImageDirectory, is_limited: bool
) -> ScoringInputs:
    warnings, headers = images.warnings(), read_headers(images)
    images, unreadable_images = without_unreadable_images(images, headers.unreadable, is_limited)
    # A model of the designer does not record its image size: the designer scores images at their
    # own size.
    recipe, size_reason = decide(model, headers.common_size, max_common_side=MAX_IMAGE_SIZE)
    spec = _classifier_spec(model, model.categories, recipe)
    return ScoringInputs(
        model, images, spec, size_reason, tuple(unreadable_images), tuple(warnings), is_limited
    )


def open_trained_model(
    trained_model: Path, image_size: int | None
) -> tuple[ModelDirectory, ClassifierSpec]:
    """Open one that may lack an `image_size`.

    Raises `InvalidModelDirectoryError`, `ParameterError`.
    """
    if image_size is not None and not MIN_IMAGE_SIZE <= image_size <= MAX_IMAGE_SIZE:
        expected = f"should be from {MIN_IMAGE_SIZE} to {MAX_IMAGE_SIZE}; it is {image_size}."
        raise ParameterError(f"{parameter('image_size')} {expected}")
    model = open_trained(trained_model)
    known = model.recipe.image_size or family_of(model.architecture).image_size
    if known is None and image_size is None:
        raise ParameterError(
            f"{model.port} {model.root} does not record its image size; the designer's models never"
            " do."
            f" Give it with {parameter('image_size')}."
        )
    if known is not None and image_size is not None and sides(known) != sides(image_size):
        raise ParameterError(f"{parameter('image_size')} is {image_size}; the model's is {known}.")
    size = sides(image_size) if known is None and image_size else None
    recipe, _ = decide(model, size, max_common_side=MAX_IMAGE_SIZE)
    return model, _classifier_spec(model, model.categories, recipe)


def open_trained(path: Path) -> ModelDirectory:
    model = open_model_directory(path, TRAINED_MODEL, TRAINED_HINT)
    if not model.is_trained:
        reason = f"it is not trained: {SPEC} names no label_map_file."
        raise model.error(reason, f"Train it first, with {worded('`train`', '`fit`')}.")
    return model


def _classifier_spec(
    model: ModelDirectory, categories: tuple[str, ...], decided: OpenRecipe
) -> ClassifierSpec:
    colours = Colours(decided.white_level or MAX_WHITE, decided.background)
    framing = Framing(*decided.image_size, decided.crop_fraction, decided.framing, colours)
    mean, std = decided.mean, decided.std
    return ClassifierSpec(model.architecture, model.option, categories, framing, mean, std)
