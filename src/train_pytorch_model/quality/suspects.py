"""Images whose category is probably wrong.

`suspects.csv`, in the trained model directory, lists images whose category is probably wrong, the most
suspicious first. Both data sets are judged by what a run knows anyway: the training images by their margins
while they were learned, the validation images by predictions of a model that was not trained on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory

SUSPECTS = "suspects.csv"
MAX_MARGIN = 0.35  # of a suspect: on clean digits, one image in a hundred is below
MAX_SHARE = 0.1  # of the images: a network that has learned little doubts half of them
ROUNDING = 1e-6


@dataclass(frozen=True)
class Suspects:
    """K images of a data set, by increasing score."""

    indices: np.ndarray  # (K,), int64
    proposed: np.ndarray  # (K,), int64: the class indices of more probable categories
    scores: np.ndarray  # (K,), float64: how probable the given category is, from 0 to 1
    num_images: int  # of the whole data set


@dataclass(frozen=True)
class Suspect:
    """A row of suspects.csv."""

    file: str
    given: str
    proposed: str
    score: float
    dataset: str
    original: str  # the file's name before it was copied; empty if unknown


def suspects_by_margin(margins: np.ndarray, others: np.ndarray) -> Suspects:
    """Suspects by mean margins (N,) of the given categories over the best others (N,), 0 to 1; NaN:
    none.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    chosen = order[margins[order] < MAX_MARGIN][: int(MAX_SHARE * len(order))]
    return Suspects(chosen, others[chosen], margins[chosen], len(margins))


def suspects_by_prediction(targets: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Suspects among N images with targets (N,), by predictions (N, C) that did not learn from
    them.

    Confident learning (Northcutt et al. 2021, Confident Learning: Estimating Uncertainty in Dataset
    Labels, equation 1): a category is confident if it is at least as probable as on average for the
    images that are given it. An image is suspect if its most probable confident category is not its
    own, nor is the most probable one.
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
        for place, (index, proposed, score, original) in enumerate(
            zip(*columns, originals, strict=True), 1
        ):
            given = images.categories[images.class_indices[index]]
            better, file = images.categories[proposed], images.file_names[index]
            suspect = Suspect(file, given, better, round(score, 4), images.port, original)
            ranked.append((place / found.num_images, suspect))
    return [suspect for _, suspect in sorted(ranked, key=lambda each: each[0])]
