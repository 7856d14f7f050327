"""Images that look alike, within a data set or in two of them, so that a model is measured by what it memorized.

`twins.csv` lists images that look alike, so that validation measures what was memorized. What contradicts
itself comes first, then pairs of a training and a validation image, then those within one data set:

    port,file_name,category               an image
    other_port,other_file_name,other_category   another that looks like it; of several copies, each is listed
                                          with the first one
    kind                                  identical (byte by byte), similar or mirrored
    distance                              bits in which the perceptual hashes differ, of 128
"""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.config.wording import counted, worded
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.quality.near_duplicates import Pairs, find_pairs

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
class TrainingLookAlikes:
    """Images of a data set that look like an image on which the model was trained."""

    images: int
    total: int  # of the whole data set
    accuracy_without: float | None  # the accuracy on the others; None without any

    @classmethod
    def of(cls, is_familiar: np.ndarray, is_hit: np.ndarray) -> "TrainingLookAlikes":
        """From `is_familiar` (N,), bool, and whether the predictions for the others are right,
        (M,), bool.
        """
        return cls(
            int(is_familiar.sum()), len(is_familiar), float(is_hit.mean()) if len(is_hit) else None
        )

    def describe(self, accuracy: float | None = None) -> str:
        """What that means for evaluated or, with their accuracy, validation images; empty without
        any.
        """
        if not self.images:
            return ""
        kind, means, it, more = (
            "image",
            "an image on which the model was trained:",
            "the accuracy",
            "",
        )
        if accuracy is not None:
            kind = "validation image"
            means = f"a training image: the accuracy of {accuracy:.1%} includes them, and"
            together = worded(
                "`split` keeps them together", "`fit` keeps those of one folder together"
            )
            it, more = "it", f" {TWINS} lists the pairs; {together}."
        rest = "there are no others"
        if self.accuracy_without is not None:
            rest = f"on the others {it} is {self.accuracy_without:.1%}"
        look, images = (
            "looks" if self.images == 1 else "look",
            counted(self.total, kind, f"{kind}s"),
        )
        return f"{self.images:,} of {images} {look} like {means} {rest}.{more}"


def compare_with_training(
    known: np.ndarray, hashes: np.ndarray, is_hit: np.ndarray
) -> TrainingLookAlikes | None:
    """Compare hashes (N, 16), uint8, of evaluated images with `known` (K, 16); None if K is 0."""
    if len(known) == 0:
        return None
    is_seen = look_like_training(
        find_pairs(np.concatenate([known, hashes]), len(known)), len(known), len(hashes)
    )
    return TrainingLookAlikes.of(is_seen, is_hit[~is_seen])


def find_twins(
    training: ImageDirectory, validation: ImageDirectory, identical: np.ndarray, hashes: np.ndarray
) -> tuple[list[TwinRow], np.ndarray]:
    """Return the twins among the images of both; and which validation images look like a training
    image.

    The latter is (V,), bool. Validation images are numbered on after the training images: in the
    `identical` pairs (P, 2) and in their perceptual `hashes` (N, 16), uint8.
    """
    similar = find_pairs(hashes)
    # Identical pairs have a distance of -1, and replace the same ones among the similar.
    images = np.concatenate([identical, similar.images])
    distances = np.concatenate([np.full(len(identical), -1), similar.distances])
    is_mirrored = np.concatenate([np.zeros(len(identical), bool), similar.is_mirrored])
    _, firsts = np.unique(images, axis=0, return_index=True)
    found = Pairs(images[firsts], distances[firsts], is_mirrored[firsts])

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

    kinds = np.where(
        found.is_mirrored, "mirrored", np.where(found.distances < 0, "identical", "similar")
    )
    rows = [
        TwinRow(
            *describe(one), *describe(other), str(kinds[place]), max(0, int(found.distances[place]))
        )
        for place, (one, other) in zip(order.tolist(), found.images[order].tolist(), strict=True)
    ]
    return rows, look_like_training(found, len(training), len(validation))


def look_like_training(found: Pairs, num_training: int, num_validation: int) -> np.ndarray:
    """(V,), bool: the validation images that are paired with a training image, or copies of such a
    one.
    """
    one, other = found.images.T
    is_seen = np.zeros(num_training + num_validation, bool)
    is_seen[other[(one < num_training) & (other >= num_training)]] = True
    is_copy = found.distances <= 0  # which are paired with the first of their kind only
    is_seen[other[is_copy]] |= is_seen[one[is_copy]]
    return is_seen[num_training:]
