"""The inputs of scoring, evaluation and export, opened and checked against each other."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config.recipe import MAX_IMAGE_SIZE, MIN_IMAGE_SIZE, sides
from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import bulleted, counted, parameter, worded
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats import image_directory, listing
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.label_kinds import LabelKind, OnePerImage, SetsPerImage
from train_pytorch_model.formats.labelled_folder import LabelledImages, open_labelled
from train_pytorch_model.formats.listing import missing_names
from train_pytorch_model.formats.model_directory import SPEC, ModelDirectory, open_model_directory
from train_pytorch_model.formats.part_names import PARTS, TEST
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError
from train_pytorch_model.image_classifier.architectures import family_of
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs import advice
from train_pytorch_model.inputs.category_names import written_otherwise
from train_pytorch_model.inputs.damaged_categories import without_damaged_categories
from train_pytorch_model.inputs.decide import classifier_spec, decide
from train_pytorch_model.inputs.headers import read_headers
from train_pytorch_model.inputs.opening import check_same_task
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.inputs.unreadable_images import UnreadableImage, without_unreadable_images

TRAINED_MODEL = "Trained model"
DATASET = "Dataset"

TRAINED_HINT = (
    "Name a directory that `train`, `fit` or the designer has written; weights alone have no"
    " categories."
)
EVALUATION_LABELS_HINT = (
    "Evaluation needs a category for every image: one folder per category, or a labelled"
    " ImageDirectory."
)


@dataclass(frozen=True)
class ScoringInputs:
    """The model and the images of scoring or evaluation."""

    model: ModelDirectory
    images: ImageDirectory
    spec: ClassifierSpec
    size_reason: str
    unreadable_images: tuple[UnreadableImage, ...]
    warnings: tuple[str, ...]
    # Whether only few images may be unreadable; for scoring, any number of them.
    is_limited: bool
    against: "ScoringInputs | None" = None  # another model, to be compared on the same images


def open_scoring_inputs(trained_model: Path, dataset: Path) -> ScoringInputs:
    """Open both. Raises `InvalidModelDirectoryError`, `InvalidDatasetError`."""
    model = open_trained(trained_model)
    images, warnings = open_images_at_any_depth(dataset, DATASET, model.categories)
    inputs = _scoring_inputs(model, images, is_limited=False)
    return replace(inputs, warnings=(*warnings, *inputs.warnings))


def open_images_at_any_depth(
    path: Path, port: str, known: Collection[str] = ()
) -> tuple[ImageDirectory, Sequence[str]]:
    """Open an image, or folders of any depth; return warnings, too.

    A folder called like a `known` category is one. Raises `InvalidDatasetError`.
    """
    is_image = listing.suffix_of(path.name) in listing.SUFFIXES and os.path.isfile(path)
    if is_image and not (path.parent / META).exists():
        return images_of(listing.list_unlabelled([path.name], {}), path.parent, port), ()
    images = _open_as_categories(path, port, known)
    if images is not None and listing.LOOSE not in images.ignored:
        return images, ()
    try:
        nested = images_of(listing.read_images_at_any_depth(path), path, port)
    except MalformedFileError as error:
        raise InvalidDatasetError(f'{port} "{path}"', str(error)) from error
    return nested, [
        f"{nested.title} has images at several depths: its folders are not taken for categories."
    ]


def _open_as_categories(path: Path, port: str, known: Collection[str]) -> ImageDirectory | None:
    """Return an image directory; None for a folder that is none, but may hold images deeper.

    Raises `InvalidDatasetError` for other problems.
    """
    try:
        return open_image_directory(path, port, known)
    except InvalidDatasetError:
        markers = (META, INCOMPLETE, image_directory.IMAGE_LIST)
        if not os.path.isdir(path) or any(os.path.exists(path / name) for name in markers):
            raise
        return None


def open_evaluation_inputs(
    trained_model: Path, dataset: Path, columns: TableOptions = BY_DEFAULT
) -> ScoringInputs:
    """Open both; the images get the model's categories, in its order.

    Of a table's parts, all are evaluated, or the test, if the user names the column. Raises
    `InvalidModelDirectoryError`, `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    model = open_trained(trained_model)
    labelled = open_labelled(dataset, DATASET, columns, known=model.categories)
    images = without_damaged_categories(_images_to_evaluate(labelled, columns))
    return evaluation_inputs(model, images)


def _images_to_evaluate(labelled: LabelledImages, columns: TableOptions) -> ImageDirectory:
    """Return the images of the test, if the user names the column of parts; else all."""
    images = labelled.images
    if labelled.parts is None:
        return images
    is_test = labelled.parts == PARTS.index(TEST)
    if columns.split_column:
        if not is_test.any():
            reason = f"its column {columns.split_column!r} is for no image {TEST!r}."
            raise InvalidDatasetError(images.title, reason)
        return images.select(np.flatnonzero(is_test))
    note = (
        f"its table tells {counted(int(is_test.sum()), 'image', 'images')} for the test, and all"
        f" {len(images):,} are evaluated. {parameter('split_column')} takes those of the test."
    )
    return replace(images, notes=(*images.notes, note))


def evaluation_inputs(model: ModelDirectory, images: ImageDirectory) -> ScoringInputs:
    """Return the inputs of `open_evaluation_inputs`, of what is open already."""
    images.require_labels(EVALUATION_LABELS_HINT)
    unknown = [repr(name) for name in missing_names(images.categories, model.categories)]
    if unknown:
        raise InvalidDatasetError(
            images.title,
            f"the model does not know {len(unknown)} of its categories:{bulleted(unknown)}",
            f"\nThe model knows:{bulleted([repr(name) for name in model.categories])}",
        )
    _check_same_task(model, images)
    inputs = _scoring_inputs(model, images.with_categories(model.categories), is_limited=True)
    familiar = advice.familiarity_warnings(model, inputs.images)
    return replace(inputs, warnings=(*inputs.warnings, *familiar))


def with_other_model(inputs: ScoringInputs, path: Path) -> ScoringInputs:
    """Return the inputs with another model, to be compared on the same images.

    Raises `InvalidModelDirectoryError`, `ParameterError` unless it has the same categories.
    """
    model = open_trained(path, parameter("against"))
    against = f"{parameter('against')} {path}"
    for answers in (inputs.spec.answers, model.answers):
        refuse_lists(
            answers,
            ParameterError(
                f"{against} cannot be compared: models that answer any number of categories are"
                f" evaluated one by one, without {parameter('against')}."
            ),
        )
    lacking = missing_names(inputs.spec.categories, model.categories)
    more = missing_names(model.categories, inputs.spec.categories)
    differences = [
        *(f"{name!r} is known to the evaluated model only" for name in lacking),
        *(f"{name!r} is known to the other model only" for name in more),
    ]
    if differences:
        raise ParameterError(
            f"{against} has other categories than the evaluated model:{bulleted(differences)}\n"
            "Compare models that were trained for the same categories."
        )
    common_size = read_headers(inputs.images).common_size
    recipe, size_reason = decide(model, common_size, max_common_side=MAX_IMAGE_SIZE)
    spec = classifier_spec(model, model.categories, recipe)
    other = replace(inputs, model=model, spec=spec, size_reason=size_reason)
    return replace(inputs, against=other)


def _check_same_task(model: ModelDirectory, images: ImageDirectory) -> None:
    """Raise `InvalidDatasetError` if either the model or the images have lists of categories."""
    if not is_same_task(model, images):
        raise InvalidDatasetError(images.title, *_MISFITS[type(images.labels)])


def is_same_task(model: ModelDirectory, images: ImageDirectory) -> bool:
    """Return whether both the model and the images have lists of categories, or neither."""
    return model.answers.is_multi_label == images.is_multi_label


# Why a model cannot be evaluated on images, which have the other kind of labels, and what to do.
_MISFITS: Mapping[type[LabelKind], tuple[str, str]] = {
    OnePerImage: (
        "each of its images has one category, and the model answers any number of them.",
        "Give lists, in a column `labels` of a table, such as `cat;dog`, or `cat;` for an image of"
        " one category.",
    ),
    SetsPerImage: (
        "its images have lists of categories, and the model answers one category each.",
        "Evaluate it on images of one category each, or train a model on lists.",
    ),
}


def check_test(training: ImageDirectory, test: ImageDirectory) -> None:
    """Check, before training, what the evaluation of the trained model would refuse.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    test.require_labels(EVALUATION_LABELS_HINT)
    check_same_task(training, test)
    unknown = missing_names(test.categories, training.categories)
    if unknown:
        raise InvalidDatasetError(
            test.title,
            f"training has none of these categories:{bulleted(list(map(repr, unknown)))}",
            " ".join(
                [
                    "\nThe model could not answer with them. Add images of them to training, or"
                    " leave them out of the test.",
                    written_otherwise(unknown, training.categories),
                    *training.notes_as_sentences(),
                ]
            ).rstrip(),
        )
    without_unreadable_images(test, read_headers(test).unreadable)


def inputs_of(model: ModelDirectory, images: ImageDirectory) -> ScoringInputs:
    """Return the inputs of scoring, of what is open already. Raises `InvalidDatasetError`."""
    return _scoring_inputs(model, images, is_limited=False)


def _scoring_inputs(
    model: ModelDirectory, images: ImageDirectory, is_limited: bool
) -> ScoringInputs:
    warnings = images.warnings()
    headers = read_headers(images)
    images, unreadable_images = without_unreadable_images(images, headers.unreadable, is_limited)
    # The designer's models record no image size: the designer scores images as large as they are.
    recipe, size_reason = decide(model, headers.common_size, max_common_side=MAX_IMAGE_SIZE)
    spec = classifier_spec(model, model.categories, recipe)
    return ScoringInputs(
        model=model,
        images=images,
        spec=spec,
        size_reason=size_reason,
        unreadable_images=tuple(unreadable_images),
        warnings=tuple(warnings),
        is_limited=is_limited,
    )


def open_trained_model(
    trained_model: Path, image_size: int | None
) -> tuple[ModelDirectory, ClassifierSpec]:
    """Open a trained model, which may need an `image_size`, and return its specification, too.

    Raises `InvalidModelDirectoryError`, `ParameterError`.
    """
    if image_size is not None and not MIN_IMAGE_SIZE <= image_size <= MAX_IMAGE_SIZE:
        expected = f"should be from {MIN_IMAGE_SIZE} to {MAX_IMAGE_SIZE}; it is {image_size}."
        raise ParameterError(f"{parameter('image_size')} {expected}")
    model = open_trained(trained_model)
    recipe, _ = decide(model, _missing_size(model, image_size), max_common_side=MAX_IMAGE_SIZE)
    return model, classifier_spec(model, model.categories, recipe)


def _missing_size(model: ModelDirectory, image_size: int | None) -> tuple[int, int] | None:
    """Return the size of a model that records none; None if it does. Raises `ParameterError`."""
    recorded = model.recipe.image_size or family_of(model.architecture).image_size
    if recorded is not None:
        if image_size is not None and sides(recorded) != sides(image_size):
            raise ParameterError(
                f"{parameter('image_size')} is {image_size}; the model's is {recorded}."
            )
        return None
    if image_size is None:
        raise ParameterError(
            f"{model.port} {model.root} does not record its image size; the designer's models never"
            f" do. Give it with {parameter('image_size')}."
        )
    return sides(image_size)


def open_trained(path: Path, port: str = TRAINED_MODEL) -> ModelDirectory:
    """Open a trained model. Raises `InvalidModelDirectoryError`."""
    model = open_model_directory(path, port, TRAINED_HINT)
    if not model.is_trained:
        reason = f"it is not trained: {SPEC} names no label_map_file."
        raise model.error(reason, f"Train it first, with {worded('`train`', '`fit`')}.")
    return model
