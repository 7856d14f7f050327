"""Twins in the data sets of a run: images that look alike, so that validation measures what was memorized.

`twins.csv`, in the trained model directory, lists them, what contradicts itself first, then pairs of a
training and a validation image, then those within one data set:

    port,file_name,category               an image
    other_port,other_file_name,other_category   another that looks like it; of several copies, each is listed
                                          with the first one
    kind                                  identical (byte by byte), similar or mirrored
    distance                              bits in which the perceptual hashes differ, of 128
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.inputs.perceptual_hash import Pairs, find_pairs
from train_pytorch_model.words.wording import counted

TWINS = "twins.csv"


@dataclass(frozen=True)
class TwinRow:
    """A row of twins.csv."""

    port: str
    file_name: str
    category: str
    other_port: str
    other_file_name: str
    other_category: str
    kind: str
    distance: int


@dataclass(frozen=True)
class Twins:
    """The twins of a run."""

    rows: Sequence[TwinRow]
    is_seen: np.ndarray
    """(V,), bool: which validation images look like a training image."""

    def accuracy_without(self, indices: np.ndarray, is_hit: np.ndarray) -> float | None:
        """The accuracy on the validation images that do not look like a training image; None without any.

        `is_hit` (N,), bool, is of the validation images at `indices` (N,).
        """
        return _accuracy_of(is_hit[~self.is_seen[indices]])


@dataclass(frozen=True)
class Familiar:
    """Evaluated images that look like an image on which the model was trained."""

    images: int
    accuracy_without: float | None
    """The accuracy on the others; None without any."""

    def describe(self, evaluated: int) -> str:
        """What that means for the accuracy on all `evaluated` images."""
        images = counted(evaluated, "image", "images")
        rest = "there are no others"
        if self.accuracy_without is not None:
            rest = f"on the others the accuracy is {self.accuracy_without:.1%}"
        return f"{_look_like(self.images, images)} an image on which the model was trained: {rest}."


def compare_with_training(known: np.ndarray, hashes: np.ndarray, is_hit: np.ndarray) -> Familiar | None:
    """Compare evaluated images with the hashes (K, 16) of the training images; None if there are none.

    `hashes` (N, 16), uint8, and `is_hit` (N,), bool, are of the evaluated images.
    """
    if len(known) == 0:
        return None
    found = find_pairs(np.concatenate([known, hashes]), len(known))
    is_seen = _seen(found, len(known), len(hashes))
    return Familiar(int(is_seen.sum()), _accuracy_of(is_hit[~is_seen]))


def find_twins(
    training: ImageDirectory, validation: ImageDirectory, identical: np.ndarray, hashes: np.ndarray
) -> Twins:
    """Return the twins among the images of both.

    Validation images are numbered on after the training images: in the `identical` pairs (P, 2) and in their
    perceptual `hashes` (N, 16), uint8.
    """
    found = _with_identical(find_pairs(hashes), identical)
    directories, first_validation = (training, validation), len(training)
    categories = np.concatenate([training.class_indices, validation.class_indices])
    contradicts = categories[found.images[:, 0]] != categories[found.images[:, 1]]
    is_shared = (found.images[:, 0] < first_validation) & (found.images[:, 1] >= first_validation)
    order = np.lexsort([*found.images.T[::-1], found.distances, ~is_shared, ~contradicts])

    def describe(number: int) -> tuple[str, str, str]:
        directory = directories[number >= first_validation]
        index = number - first_validation * (number >= first_validation)
        category = directory.categories[directory.class_indices[index]]
        return directory.port, directory.file_names[index], category

    kinds = np.where(found.is_mirrored, "mirrored", np.where(found.distances < 0, "identical", "similar"))
    rows = [
        TwinRow(*describe(one), *describe(other), str(kinds[place]), max(0, int(found.distances[place])))
        for place, (one, other) in zip(order.tolist(), found.images[order].tolist(), strict=True)
    ]
    return Twins(rows, _seen(found, len(training), len(validation)))


def twins_csv(rows: Sequence[TwinRow]) -> str:
    """The content of twins.csv; undecodable bytes in names are escaped."""
    return csv_text(table_of(TwinRow, rows))


def describe_seen(twins: Twins, accuracy: float, without: float | None) -> str:
    """What the twins mean for the accuracy; empty if no validation image looks like a training image."""
    seen = int(twins.is_seen.sum())
    if not seen:
        return ""
    images = counted(len(twins.is_seen), "validation image", "validation images")
    rest = f"on the others it is {without:.1%}" if without is not None else "there are no others"
    return (
        f"{_look_like(seen, images)} a training image: the accuracy of {accuracy:.1%} includes them, and"
        f" {rest}. {TWINS} lists the pairs; `split` keeps them together."
    )


def _look_like(count: int, images: str) -> str:
    return f"{count:,} of {images} {'looks' if count == 1 else 'look'} like"


def _accuracy_of(is_hit: np.ndarray) -> float | None:
    return float(is_hit.mean()) if len(is_hit) else None


def _with_identical(found: Pairs, identical: np.ndarray) -> Pairs:
    """Add the identical pairs (P, 2), with a distance of -1, in place of the same ones among those found."""
    images = np.concatenate([identical, found.images])
    distances = np.concatenate([np.full(len(identical), -1), found.distances])
    is_mirrored = np.concatenate([np.zeros(len(identical), bool), found.is_mirrored])
    _, firsts = np.unique(images, axis=0, return_index=True)
    return Pairs(images[firsts], distances[firsts], is_mirrored[firsts])


def _seen(found: Pairs, num_training: int, num_validation: int) -> np.ndarray:
    """(V,), bool: the validation images that are paired with a training image, or copies of such a one."""
    one, other = found.images.T
    is_seen = np.zeros(num_training + num_validation, bool)
    is_seen[other[(one < num_training) & (other >= num_training)]] = True
    is_copy = found.distances <= 0  # which are paired with the first of their kind only
    is_seen[other[is_copy]] |= is_seen[one[is_copy]]
    return is_seen[num_training:]
