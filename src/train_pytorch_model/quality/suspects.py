"""Images whose category is probably wrong.

`suspects.csv`, in the trained model directory, lists them, the most suspicious first. Both data
sets are judged by what a run knows anyway: the training images by their margins while they were
learned, the validation images by predictions of a model that was not trained on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory

SUSPECTS = "suspects.csv"
MAX_MARGIN = 0.35  # of a suspect: on clean digits, one image in a hundred is below
MAX_FRACTION = 0.1  # of the images: a network that has learned little doubts half of them
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
    """Return the suspects among N training images.

    The mean margins (N,) of their categories over the best other categories are from 0 to 1, and
    NaN for an image without; `others` (N,) are the class indices of these categories.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    suspicious = order[margins[order] < MAX_MARGIN]
    chosen = suspicious[: int(MAX_FRACTION * len(margins))]
    return Suspects(chosen, others[chosen], margins[chosen], len(margins))


def suspects_by_prediction(targets: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Return the suspects among N images with targets (N,), by probabilities (N, C).

    They are predictions of a model that did not learn from these images.

    Confident learning (Northcutt et al. 2021, Confident Learning: Estimating Uncertainty in Dataset
    Labels, equation 1): a category is confident if it is at least as probable as on average for the
    images that are given it. An image is suspect if its most probable confident category is not its
    own, nor is the most probable one.
    """
    num_classes = probabilities.shape[1]
    of_target = probabilities[np.arange(len(targets)), targets]  # (N,)
    counts = np.bincount(targets, minlength=num_classes)  # (C,)
    thresholds = np.bincount(targets, of_target, num_classes) / np.maximum(counts, 1)  # (C,)
    is_confident = (probabilities >= thresholds - ROUNDING) & (counts > 0)  # (N, C)
    proposed = np.where(is_confident, probabilities, -1).argmax(axis=1)  # (N,)
    predicted = probabilities.argmax(axis=1)  # (N,)
    differs = (proposed != targets) & (predicted != targets)
    suspects = np.flatnonzero(differs & is_confident.any(axis=1))
    chosen = suspects[np.argsort(of_target[suspects], kind="stable")]
    return Suspects(chosen, proposed[chosen], of_target[chosen], len(targets))


def suspect_rows(parts: Sequence[tuple[ImageDirectory, Suspects]]) -> list[Suspect]:
    """Return the rows of suspects.csv, of all data sets.

    They are merged by how far down each is in the order of its data set, as a fraction of it.
    """
    ranked: list[tuple[float, Suspect]] = []
    for images, suspects in parts:
        columns = (
            suspects.indices.tolist(),
            suspects.proposed.tolist(),
            suspects.scores.tolist(),
            images.original_names(suspects.indices),
        )
        for rank, (index, proposed, score, original) in enumerate(zip(*columns, strict=True), 1):
            suspect = Suspect(
                file=images.file_names[index],
                given=images.categories[images.class_indices[index]],
                proposed=images.categories[proposed],
                score=round(score, 4),
                dataset=images.port,
                original=original,
            )
            ranked.append((rank / suspects.num_images, suspect))
    ranked.sort(key=lambda rank_and_suspect: rank_and_suspect[0])
    return [suspect for _, suspect in ranked]
