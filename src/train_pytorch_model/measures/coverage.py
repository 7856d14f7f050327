"""What answering only when confident gives: the share of images answered against the accuracy of the answers.

As in El-Yaniv and Wiener 2010, On the Foundations of Noise-free Selective Classification.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
PERCENTS = range(1, 101)


@dataclass(frozen=True)
class Answered:
    """The images that are answered if only a confidence of at least `threshold` counts as an answer."""

    threshold: float
    images: int
    share: float
    """Fraction of all images."""
    accuracy: float | None
    """Fraction of the answered images that are predicted correctly; None if there are none."""


@dataclass(frozen=True)
class Coverage:
    """The same for several thresholds, and as a curve."""

    rows: Sequence[Answered]
    accuracies: Sequence[float]
    """(100,): the accuracy of the most confident 1, 2, … 100 % of the images."""


def coverage_of(confidences: np.ndarray, is_hit: np.ndarray) -> Coverage:
    """The coverage of at least one image, from confidences (N,) and whether each is right, (N,), bool."""
    order = np.argsort(-confidences, kind="stable")
    sorted_, hits = confidences[order], np.cumsum(is_hit[order])  # (N,), the most confident first
    rows = []
    for threshold in THRESHOLDS:
        images = int((sorted_ >= threshold).sum())
        accuracy = int(hits[images - 1]) / images if images else None
        rows.append(Answered(threshold, images, images / len(hits), accuracy))
    counts = [max(1, round(len(hits) * percent / 100)) for percent in PERCENTS]
    return Coverage(rows, [int(hits[count - 1]) / count for count in counts])
