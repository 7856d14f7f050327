"""Images whose category is probably wrong, the most suspicious first.

Both data sets are judged by what a run knows anyway: the training images by their margins while they were
learned, the validation images by predictions of a model that was not trained on them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import csv_text, table_of

SUSPECTS = "suspects.csv"
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


def suspects_by_margin(margins: np.ndarray, others: np.ndarray) -> Suspects:
    """Suspects among N images by their mean margins (N,), NaN for none, and their best other categories (N,).

    A margin is the probability of the given category against the best other one, from 0 to 1.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    is_low = margins[order] < MAX_MARGIN
    chosen = order[is_low][: int(MAX_SHARE * len(order))]
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
    rows = [
        ((place + 1) / suspects.num_images, row)
        for images, suspects in parts
        for place, row in enumerate(_rows(images, suspects))
    ]
    return [row for _, row in sorted(rows, key=lambda ranked: ranked[0])]


def _rows(images: ImageDirectory, suspects: Suspects) -> Iterator[Suspect]:
    columns = (suspects.indices, suspects.proposed, suspects.scores)
    originals = images.original_names(suspects.indices)
    for index, proposed, score, original in zip(*(c.tolist() for c in columns), originals, strict=True):
        yield Suspect(
            file=images.file_names[index],
            given=images.categories[images.class_indices[index]],
            proposed=images.categories[proposed],
            score=round(score, 4),
            dataset=images.port,
            original=original,
        )


def suspects_csv(suspects: Sequence[Suspect]) -> str:
    """The content of suspects.csv; undecodable bytes in names are escaped."""
    return csv_text(table_of(Suspect, suspects))
