"""Images of a run that deserve a look: those whose category is probably wrong, and those that look alike.

`suspects.csv`, in the trained model directory, lists images whose category is probably wrong, the most
suspicious first. Both data sets are judged by what a run knows anyway: the training images by their margins
while they were learned, the validation images by predictions of a model that was not trained on them.

`twins.csv` lists images that look alike, so that validation measures what was memorized. What contradicts
itself comes first, then pairs of a training and a validation image, then those within one data set:

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
from train_pytorch_model.inputs.twins import Pairs, find_pairs
from train_pytorch_model.words.errors import counted

SUSPECTS = "suspects.csv"
TWINS = "twins.csv"
MAX_MARGIN = 0.4  # of a suspect: on clean digits, one image in two hundred is below
MAX_SHARE = 0.1  # of the images: a network that has learned little doubts half of them
ROUNDING = 1e-6


@dataclass(frozen=True)
class Suspects:
    """K images of a data set, by increasing score."""

    indices: np.ndarray
    """(K,), int64."""
    proposed: np.ndarray
    """(K,), int64: the class indices of more probable categories."""
    scores: np.ndarray
    """(K,), float64: how probable the given category is, from 0 to 1."""
    num_images: int
    """Of the whole data set."""


@dataclass(frozen=True)
class Suspect:
    """A row of suspects.csv."""

    file: str
    given: str
    proposed: str
    score: float
    dataset: str
    original: str
    """The file's name before it was copied; empty if unknown."""


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


def suspects_by_margin(margins: np.ndarray, others: np.ndarray) -> Suspects:
    """Suspects among N images by their mean margins (N,), NaN for none, and their best other categories (N,).

    A margin is the probability of the given category against the best other one, from 0 to 1.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    chosen = order[margins[order] < MAX_MARGIN][: int(MAX_SHARE * len(order))]
    return Suspects(chosen, others[chosen], margins[chosen], len(margins))


def suspects_by_prediction(targets: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Suspects among N images with targets (N,), by predictions (N, C) that did not learn from them.

    Confident learning (Northcutt et al. 2021, Confident Learning: Estimating Uncertainty in Dataset Labels,
    equation 1): a category is confident if it is at least as probable as on average for the images that are
    given it. An image is suspect if its most probable confident category is not its own, nor is the most
    probable one.
    """
    rows, num_classes = np.arange(len(targets)), probabilities.shape[1]
    of_target = probabilities[rows, targets]  # (N,)
    counts = np.bincount(targets, minlength=num_classes)
    thresholds = np.bincount(targets, of_target, num_classes) / np.maximum(counts, 1)  # (C,)
    is_confident = (probabilities >= thresholds - ROUNDING) & (counts > 0)  # (N, C)
    proposed = np.where(is_confident, probabilities, -1).argmax(axis=1)
    differs = (proposed != targets) & (probabilities.argmax(axis=1) != targets)
    suspects = np.flatnonzero(differs & is_confident.any(axis=1))
    chosen = suspects[np.argsort(of_target[suspects], kind="stable")]
    return Suspects(chosen, proposed[chosen], of_target[chosen], len(targets))


def suspect_rows(parts: Sequence[tuple[ImageDirectory, Suspects]]) -> list[Suspect]:
    """The rows of suspects.csv from all data sets, as far down in the order of its own as each is."""
    ranked = []
    for images, found in parts:
        columns = (found.indices.tolist(), found.proposed.tolist(), found.scores.tolist())
        originals = images.original_names(found.indices)
        for place, (index, proposed, score, original) in enumerate(zip(*columns, originals, strict=True), 1):
            given = images.categories[images.class_indices[index]]
            better, file = images.categories[proposed], images.file_names[index]
            suspect = Suspect(file, given, better, round(score, 4), images.port, original)
            ranked.append((place / found.num_images, suspect))
    return [suspect for _, suspect in sorted(ranked, key=lambda each: each[0])]


def compare_with_training(known: np.ndarray, hashes: np.ndarray, is_hit: np.ndarray) -> Familiar | None:
    """Compare evaluated images with the hashes (K, 16) of the training images; None if there are none.

    `hashes` (N, 16), uint8, and `is_hit` (N,), bool, are of the evaluated images.
    """
    if len(known) == 0:
        return None
    is_seen = _seen(find_pairs(np.concatenate([known, hashes]), len(known)), len(known), len(hashes))
    return Familiar(int(is_seen.sum()), _accuracy_of(is_hit[~is_seen]))


def find_twins(
    training: ImageDirectory, validation: ImageDirectory, identical: np.ndarray, hashes: np.ndarray
) -> Twins:
    """Return the twins among the images of both.

    Validation images are numbered on after the training images: in the `identical` pairs (P, 2) and in their
    perceptual `hashes` (N, 16), uint8.
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

    kinds = np.where(found.is_mirrored, "mirrored", np.where(found.distances < 0, "identical", "similar"))
    rows = [
        TwinRow(*describe(one), *describe(other), str(kinds[place]), max(0, int(found.distances[place])))
        for place, (one, other) in zip(order.tolist(), found.images[order].tolist(), strict=True)
    ]
    return Twins(rows, _seen(found, len(training), len(validation)))


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


def _seen(found: Pairs, num_training: int, num_validation: int) -> np.ndarray:
    """(V,), bool: the validation images that are paired with a training image, or copies of such a one."""
    one, other = found.images.T
    is_seen = np.zeros(num_training + num_validation, bool)
    is_seen[other[(one < num_training) & (other >= num_training)]] = True
    is_copy = found.distances <= 0  # which are paired with the first of their kind only
    is_seen[other[is_copy]] |= is_seen[one[is_copy]]
    return is_seen[num_training:]
