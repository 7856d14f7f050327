"""Which of several classifiers to take, by predictions of the same images out of fold.

The one with the lowest loss; but a faster one that is about as good comes before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.quality.paired_test import compare_hits

FASTER = 1.25  # times as many images a second
ALPHA = 0.05  # a difference of this probability, or less, is none of chance
# Of the standard error of the mean difference in loss: hits alone tell too little on few images.
ABOUT_AS_GOOD = 0.5


@dataclass(frozen=True)
class Entry:
    """A classifier, with its predictions of N images out of fold."""

    name: str
    images_per_second: float
    losses: np.ndarray  # (N,), in nats
    is_hit: np.ndarray  # (N,), bool


def choose(entries: Sequence[Entry]) -> tuple[Entry, str]:
    """Return the classifier to take, and why, as a sentence."""
    best = min(entries, key=lambda entry: _mean(entry.losses))
    faster = [
        entry for entry in entries if entry.images_per_second >= FASTER * best.images_per_second
    ]
    for entry in sorted(faster, key=lambda entry: -entry.images_per_second):
        if _is_about_as_good(entry, best):
            return entry, _why_faster(entry, best)
    return best, _why_best(best, entries)


def _mean(losses: np.ndarray) -> float:
    mean = float(losses.mean())
    return mean if np.isfinite(mean) else np.inf


def _is_about_as_good(entry: Entry, best: Entry) -> bool:
    differences = entry.losses - best.losses
    error = float(differences.std()) / np.sqrt(len(differences))
    has_similar_loss = bool(differences.mean() <= ABOUT_AS_GOOD * error)
    return has_similar_loss and compare_hits(best.is_hit, entry.is_hit).p_value > ALPHA


def _why_faster(entry: Entry, best: Entry) -> str:
    test = compare_hits(best.is_hit, entry.is_hit)
    times = entry.images_per_second / best.images_per_second
    return (
        f"{entry.name} is {times:.1f} times as fast as {best.name}, which has the lowest loss, and"
        f" about as good: of {test.only_first + test.only_second:,} images that only one of the two"
        f" recognizes, it recognizes {test.only_second:,}, and a difference like that is chance in"
        f" {test.p_value:.0%} of cases."
    )


def _why_best(best: Entry, entries: Sequence[Entry]) -> str:
    if len(entries) == 1:
        return f"{best.name} is the only candidate that raced."
    return (
        f"{best.name} has the lowest loss on images that its classifier has not learned from,"
        f" {_mean(best.losses):.3f}, and none that is faster is about as good."
    )


def nested_hits(
    hits: Sequence[np.ndarray], losses_without: Sequence[np.ndarray], folds: np.ndarray
) -> np.ndarray:
    """Return (N,), bool: whether each image is recognized by a classifier chosen without its fold.

    Of each classifier there are its `hits` (N,) out of fold, and its mean loss (K,) on other folds
    than each.
    """
    losses = np.nan_to_num(np.stack(losses_without), nan=np.inf)  # (classifiers, K)
    chosen = losses.argmin(axis=0)  # (K,)
    is_hit: np.ndarray = np.stack(hits)[chosen[folds], np.arange(len(folds))]
    return is_hit
