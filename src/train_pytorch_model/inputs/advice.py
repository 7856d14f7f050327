"""Warnings about inputs that can be used, but do not teach or show what their user expects."""

from collections.abc import Iterator, Sequence

import numpy as np

from train_pytorch_model.config.wording import (
    MAX_LISTED_PROBLEMS,
    counted,
    parameter,
    quoted,
    worded,
)
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.model_directory import ModelDirectory, renamed_by_type_inference
from train_pytorch_model.formats.trained_directory import published_fingerprint
from train_pytorch_model.image_classifier.predictions import UNKNOWN_LABEL
from train_pytorch_model.inputs.category_names import spelling_warnings
from train_pytorch_model.machine.command_lines import conversion_command
from train_pytorch_model.quality.identical_files import IdenticalFiles

# Largest to smallest category; from this ratio on, rare categories are hardly learned.
IMBALANCE = 10
# Per category on average; with fewer, training from scratch learns little.
FEW_PHOTOGRAPHS = 500
# The same for digits, letters and icons; 126 digits of a kind give 97 % and more.
FEW_SMALL_IMAGES = 100
SMALL_SIDE = 32  # px


def learning_warnings(
    counts: np.ndarray, model: ModelDirectory, size: tuple[int, int]
) -> Iterator[str]:
    """Yield warnings of what limits learning.

    `counts`, (C,), are the training images of each category; `size` is the model's (height, width)
    in px.
    """
    present = counts[counts > 0]
    ratio = present.max() / present.min() if len(present) else 1.0
    if ratio >= IMBALANCE and not model.recipe.balance_classes:
        yield (
            f"The largest category has {ratio:,.0f} times as many training images as the smallest."
            f" {quoted('balance_classes', 'init-model')} compensates for that."
        )
    if model.is_pretrained or model.is_trained:
        return
    pretrained_weights = f"{quoted('pretrained', 'init-model')}, or {quoted('weights_file')}"
    if model.recipe.freeze_backbone:
        yield (
            "Only the last layer is trained, and the weights before it are random. Start from"
            f" pretrained weights: {pretrained_weights}."
        )
        return
    few = FEW_SMALL_IMAGES if max(size) <= SMALL_SIDE else FEW_PHOTOGRAPHS
    average = counts.mean()
    if average < few:
        number = f"{average:.0f}" if average >= 1 else f"{average:.1f}"
        yield (
            f"Training images per category: {number} on average, few to train from scratch."
            f" Pretrained weights need far fewer: {pretrained_weights}."
        )


def naming_warnings(categories: Sequence[str]) -> Iterator[str]:
    """Yield warnings of names that may not be meant, are renamed, or are taken for no category."""
    yield from spelling_warnings(categories)
    if UNKNOWN_LABEL in categories:
        yield (
            f"There is a category called {UNKNOWN_LABEL!r}, which is also the answer for images"
            " unlike those of training: the model will not give that answer. Give the category"
            " another name if you need it."
        )
    renamed = renamed_by_type_inference(categories)
    if renamed:
        yield (
            "the designer's Score Image Model takes these category names for numbers or missing"
            f" values: {', '.join(renamed[:MAX_LISTED_PROBLEMS])}"
        )


def sameness_warnings(
    training: ImageDirectory, validation: ImageDirectory, identical: IdenticalFiles
) -> Iterator[str]:
    """Yield warnings if the data sets share images, contradict each other, or seem swapped."""
    together = worded("`split` keeps copies together", "`fit` keeps those of one folder together")
    overfit = (
        "validation then measures how well the model memorizes its training images, not how good it"
        f" is. {together}."
    )
    at_least = "At least " if identical.is_sample else ""
    is_same = training.root.samefile(validation.root)
    if is_same and np.intersect1d(training.rows, validation.rows).size:
        yield f"Training and validation dataset are the same directory: {overfit}"
    elif identical.shared:
        images = counted(len(validation), "validation image is", "validation images are")
        also_trained_on = (
            f"{at_least}{identical.shared:,} of {images} also among the training images"
        )
        yield f"{also_trained_on}: {overfit}"
    if len(validation) > len(training):
        yield (
            f"More images to validate on ({len(validation):,}) than to train on"
            f" ({len(training):,}): are {parameter('training_dataset')} and"
            f" {parameter('validation_dataset')} swapped?"
        )
    categories = np.concatenate([training.class_indices, validation.class_indices])
    first, other = categories[identical.pairs].T
    contradicting = int(np.count_nonzero(first != other))
    if contradicting:
        copies = counted(contradicting, "image has", "images have")
        yield f"{at_least}{copies} an identical file in another category.{_how_to_merge(training)}"


def _how_to_merge(training: ImageDirectory) -> str:
    """Return how images get the categories of all their copies, if they have one each."""
    if training.is_multi_label:
        return ""
    command = conversion_command(training.root, "NEW", "--merge-copies")
    return (
        f" If both are right: `{command}` makes them one image with the categories of all its"
        " copies; training then learns any number of categories an image."
    )


def familiarity_warnings(model: ModelDirectory, images: ImageDirectory) -> Iterator[str]:
    """Yield a warning if images are named like those that trained or chose the model."""
    run = published_fingerprint(model.root) or {}
    evaluated = images.fingerprint()
    if evaluated == run.get("training_dataset"):
        yield (
            "These images have the names of the model's training images. If they are the same, the"
            " accuracy does not hold for new images."
        )
    elif evaluated == run.get("validation_dataset"):
        yield (
            "These images have the names of the validation images that chose the model's epoch. If"
            " they are the same, the accuracy is optimistic: evaluate on other images."
        )
