"""The inputs of training, opened and checked against each other, without torch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from train_pytorch_model.config import wording
from train_pytorch_model.config.recipe import DecidedRecipe, OpenRecipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.evaluation.thresholds import DEFAULT
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.formats.label_kinds import LabelKind, OnePerImage, SetsPerImage
from train_pytorch_model.formats.listing import missing_names
from train_pytorch_model.formats.model_directory import ModelDirectory, open_model_directory
from train_pytorch_model.formats.race_record import RaceRecord
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.inputs import advice
from train_pytorch_model.inputs.category_names import spelling_warnings, written_otherwise
from train_pytorch_model.inputs.damaged_categories import without_damaged_categories
from train_pytorch_model.inputs.decide import classifier_spec, decide, describe_framing, is_early
from train_pytorch_model.inputs.headers import Headers, read_headers
from train_pytorch_model.inputs.unreadable_images import UnreadableImage, without_unreadable_images
from train_pytorch_model.quality.identical_files import IdenticalFiles, find_identical

LISTS_HINT = (
    "Give both the same kind of labels: lists are in a column `labels` of a table, such as"
    " `cat;dog`, or `cat;` for an image of one category."
)
UNTRAINED_MODEL = "Untrained model"
TRAINING_DATASET = "Training dataset"
VALIDATION_DATASET = "Validation dataset"


@dataclass(frozen=True)
class OpenedInputs:
    """The inputs of a training run, whose flips and white are open.

    Both datasets have the training dataset's categories, in its order.
    """

    model: ModelDirectory
    training: ImageDirectory
    validation: ImageDirectory
    recipe: OpenRecipe
    spec: ClassifierSpec
    size_reason: str
    unreadable_images: tuple[UnreadableImage, ...]
    identical: IdenticalFiles
    warnings: tuple[str, ...]
    # Images of the same folder for a test of the trained model.
    test: ImageDirectory | None = None
    # The options by which `fit` makes the untrained model when it needs it, and their sha256.
    made_with: str = ""
    # The sha256 of the archive whose images these are, if `fit` has unpacked one.
    archive: str = ""
    made_by: str = ""
    earlier: Path | None = None  # the model that the corrections are about
    corrections: str = ""  # the table of decisions by which `fit` has corrected the images
    # How the model was chosen, if it has won a race.
    race: RaceRecord | None = None

    @property
    def categories(self) -> tuple[str, ...]:
        return self.training.categories

    @property
    def framing(self) -> Framing:
        """Return the framing of validation images, and of all images that the model predicts."""
        return self.spec.framing

    @property
    def training_framing(self) -> Framing:
        """Return the framing of training images in the last epochs, when they are largest."""
        return self._framing_at(self.recipe.training_size)

    def training_framings(self, epochs: int) -> list[Framing]:
        """Return the framing of training images in each of `epochs` epochs."""
        early = self._framing_at(self.recipe.early_size)
        late = self.training_framing
        return [early if is_early(epoch, epochs) else late for epoch in range(1, epochs + 1)]

    def _framing_at(self, size: tuple[int, int]) -> Framing:
        height, width = size
        return replace(self.spec.framing, height=height, width=width)

    def fingerprint(self, config: TrainConfig) -> dict[str, str]:
        """Return what identifies the run: parameters, decided recipe, and sha256 of the inputs.

        A model that `fit` makes again, at another time or on another machine, is identified by its
        options. Excludes flips and white: they are decided later, from the pixels.
        """
        entries = asdict(self.recipe)
        del entries["horizontal_flip"], entries["white_level"]
        if not entries["deterministic"]:  # then the words are those of runs before it existed
            del entries["deterministic"]
        recipe = {wording.flag(name): _joined(value) for name, value in entries.items()}
        archive = {"archive": self.archive} if self.archive else {}
        made_with = {"initial_model": self.made_with} if self.made_with else {}
        return {
            "parameters": config.as_text(),
            "recipe": " ".join(f"{name} {value}" for name, value in recipe.items()),
            **made_with,
            "untrained_model": self.made_by or self.model.sha256,
            "training_dataset": self.training.fingerprint(),
            "validation_dataset": self.validation.fingerprint(),
            **archive,
        }

    def with_white_level(self, white_level: int) -> "OpenedInputs":
        """Return the same inputs, in which this value of 16-bit images is white."""
        colours = self.framing.colours._replace(white_level=white_level)
        framing = replace(self.framing, colours=colours)
        return replace(self, spec=replace(self.spec, framing=framing))

    def with_flips(self, horizontal_flip: bool, reason: str = "") -> "TrainingInputs":
        """Return the inputs to train with, now that flips, the last entry, are decided."""
        last = {"horizontal_flip": horizontal_flip, "white_level": self.framing.colours.white_level}
        recipe = DecidedRecipe(**vars(self.recipe) | last)
        return TrainingInputs(**vars(self) | {"recipe": recipe, "flip_reason": reason})


@dataclass(frozen=True)
class TrainingInputs(OpenedInputs):
    """Inputs to train with: nothing in their recipe is open."""

    recipe: DecidedRecipe
    # Why `pixel_decisions` has decided that images must not be mirrored; empty otherwise.
    flip_reason: str = ""


def _joined(value: Any) -> Any:
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def open_training_inputs(
    untrained_model: Path,
    training_dataset: Path,
    validation_dataset: Path,
    epochs: int = TrainConfig.epochs,
) -> OpenedInputs:
    """Open all three; `epochs` influence sizes, augmentation and label smoothing.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    model = open_model_directory(untrained_model, UNTRAINED_MODEL)
    training, validation = open_training_datasets(training_dataset, validation_dataset)
    return training_inputs(model, training, validation, epochs)


@dataclass(frozen=True)
class CheckedImages:
    """Training and validation images whose headers have been read."""

    training: ImageDirectory  # without the unreadable images, like the validation images
    validation: ImageDirectory
    headers: Headers  # of the training images
    unreadable_images: tuple[UnreadableImage, ...]
    identical: IdenticalFiles


def training_inputs(
    model: ModelDirectory, training: ImageDirectory, validation: ImageDirectory, epochs: int
) -> OpenedInputs:
    """Check the headers of images, and decide what names and headers can decide.

    Raises `InvalidModelDirectoryError`, `InvalidDatasetError`.
    """
    return inputs_for(model, check_images(training, validation), epochs)


def check_images(training: ImageDirectory, validation: ImageDirectory) -> CheckedImages:
    """Check the headers of images. Raises `InvalidDatasetError`."""
    headers = read_headers(training)
    training, unreadable_training = without_unreadable_images(training, headers.unreadable)
    validation, unreadable_validation = without_unreadable_images(
        validation, read_headers(validation).unreadable
    )
    return CheckedImages(
        training=training,
        validation=validation,
        headers=headers,
        unreadable_images=(*unreadable_training, *unreadable_validation),
        identical=find_identical(training, validation),
    )


def inputs_for(model: ModelDirectory, checked: CheckedImages, epochs: int) -> OpenedInputs:
    """Decide what names and headers can decide of a training of this model.

    Raises `InvalidModelDirectoryError`.
    """
    training = checked.training
    validation = checked.validation
    headers = checked.headers
    recipe, size_reason = decide(
        model,
        headers.common_size,
        training.categories,
        epochs,
        sizes=headers.sizes,
        labels=training.labels,
    )
    thresholds = _FIRST_THRESHOLDS[type(training.labels)](len(training.categories))
    spec = replace(classifier_spec(model, training.categories, recipe), thresholds=thresholds)
    return OpenedInputs(
        model=model,
        training=training,
        validation=validation,
        recipe=recipe,
        spec=spec,
        size_reason=size_reason + describe_framing(spec.framing, headers.sizes),
        unreadable_images=checked.unreadable_images,
        identical=checked.identical,
        warnings=(
            *training.warnings(),
            *_NAMING_WARNINGS[type(training.labels)](training.categories),
            *advice.learning_warnings(training.class_counts(), model, recipe.image_size),
            *validation.warnings(),
            *advice.sameness_warnings(training, validation, checked.identical),
        ),
    )


def open_training_datasets(
    training_dataset: Path, validation_dataset: Path
) -> tuple[ImageDirectory, ImageDirectory]:
    """Open both, `with_same_categories`. Raises `InvalidDatasetError`, `NotLabeledDatasetError`."""
    training = open_image_directory(training_dataset, TRAINING_DATASET)
    validation = open_image_directory(validation_dataset, VALIDATION_DATASET, training.categories)
    return with_same_categories(
        without_damaged_categories(training), without_damaged_categories(validation)
    )


def with_same_categories(
    training: ImageDirectory, validation: ImageDirectory
) -> tuple[ImageDirectory, ImageDirectory]:
    """Return both, with the training categories.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    for directory in (training, validation):
        directory.require_labels()
    check_same_task(training, validation)
    _check_two_categories(training)
    _check_no_category_is_missing(training)
    _check_same_categories(training, validation)
    return training, validation.with_categories(training.categories)


def check_same_task(training: ImageDirectory, other: ImageDirectory) -> None:
    """Raise `InvalidDatasetError` if images have lists of categories in one of them only."""
    if training.is_multi_label != other.is_multi_label:
        raise InvalidDatasetError(other.title, _MISFITS[type(other.labels)], LISTS_HINT)


# Of so many categories; others are fitted at the end of the training.
_FIRST_THRESHOLDS: Mapping[type[LabelKind], Callable[[int], tuple[float, ...] | None]] = {
    OnePerImage: lambda _: None,
    SetsPerImage: lambda num_categories: (DEFAULT,) * num_categories,
}
# Lists may be empty instead of `unknown`, and the designer's Score Image Model does not read them.
_NAMING_WARNINGS: Mapping[type[LabelKind], Callable[[Sequence[str]], Iterator[str]]] = {
    OnePerImage: advice.naming_warnings,
    SetsPerImage: spelling_warnings,
}
# Why images cannot be used beside those of training, which have the other kind of labels.
_MISFITS: Mapping[type[LabelKind], str] = {
    OnePerImage: (
        "each of its images has one category, and those of training have lists of any number:"
        " whether another category applies as well is not known."
    ),
    SetsPerImage: ("its images have lists of categories, and those of training one category each."),
}


def _check_no_category_is_missing(training: ImageDirectory) -> None:
    """Raise `InvalidDatasetError` if no image has a category, where the others could have it."""
    unlearnable = training.labels.unlearnable(training.class_counts())
    missing = [repr(training.categories[index]) for index in unlearnable]
    if missing:
        raise InvalidDatasetError(
            training.title,
            "none of its images has these categories, so they cannot be"
            f" learned:{bulleted(missing)}",
            "\nAdd images of them, or leave them out.",
        )


def _check_two_categories(training: ImageDirectory) -> None:
    with_images = [training.categories[index] for index in np.flatnonzero(training.class_counts())]
    if len(with_images) >= 2:
        return
    reason = f"it has one category, {with_images[0]!r}"
    num_empty = len(training.categories) - 1
    if num_empty:
        reason += f", with images; {counted(num_empty, 'other is', 'others are')} empty"
    hint = " ".join(["A classifier needs at least two.", *training.notes_as_sentences()])
    raise InvalidDatasetError(training.title, f"{reason}.", hint)


def _check_same_categories(training: ImageDirectory, validation: ImageDirectory) -> None:
    only_validation = missing_names(validation.categories, training.categories)
    if only_validation:
        only_training = missing_names(training.categories, validation.categories)
        reason = "its categories are not those of the training dataset."
        if only_training:
            reason += f"\nOnly in training:{bulleted(list(map(repr, only_training)))}"
        reason += f"\nOnly in validation:{bulleted(list(map(repr, only_validation)))}"
        hint = "\nBoth need the same category names."
        otherwise = written_otherwise(only_validation, only_training)
        hint = " ".join(filter(None, [hint, otherwise, *training.notes_as_sentences()]))
        raise InvalidDatasetError(validation.title, reason, hint)
