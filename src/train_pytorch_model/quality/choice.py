"""Which of several classifiers to take, by predictions of the same images out of fold.

The one with the lowest loss; but a faster one that is surely about as good comes before it. That a
difference cannot be shown says nothing on few images, where none can.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FASTER = 1.25  # times as many images a second
ABOUT_AS_GOOD = 0.02  # of the lowest loss: so much more is as good
SURE = 1.645  # standard errors: 95 % of a normal distribution are below


@dataclass(frozen=True)
class Entry:
    """A classifier, with its predictions of N images out of fold."""

    name: str
    images_per_second: float
    losses: np.ndarray  # (N,), in nats
    is_hit: np.ndarray  # (N,), bool

    @property
    def loss(self) -> float:
        """Return the mean loss; infinite if it is not finite."""
        mean = float(self.losses.mean())
        return mean if np.isfinite(mean) else np.inf


def choose(entries: Sequence[Entry]) -> tuple[Entry, str]:
    """Return the classifier to take, and why, in sentences."""
    best = min(entries, key=lambda entry: entry.loss)
    faster = [
        entry for entry in entries if entry.images_per_second >= FASTER * best.images_per_second
    ]
    for entry in sorted(faster, key=lambda entry: -entry.images_per_second):
        _, most = _difference(entry, best)
        if most <= ABOUT_AS_GOOD * best.loss:
            return entry, _why_faster(entry, best)
    return best, _why_best(best, entries)


def _difference(entry: Entry, best: Entry) -> tuple[float, float]:
    """Return by how much the loss of an entry is surely higher at least, and at most."""
    if not np.isfinite(entry.loss):
        return np.inf, np.inf
    differences = entry.losses - best.losses
    mean = float(differences.mean())
    error = float(differences.std()) / np.sqrt(len(differences))
    return mean - SURE * error, mean + SURE * error


def _why_faster(entry: Entry, best: Entry) -> str:
    times = entry.images_per_second / best.images_per_second
    return (
        f"{entry.name} is {times:.1f} times as fast as {best.name}, which has the lowest loss, and"
        f" about as good: its loss is at most {ABOUT_AS_GOOD:.0%} higher, with a certainty of 95%."
    )


def _why_best(best: Entry, entries: Sequence[Entry]) -> str:
    if len(entries) == 1:
        return f"{best.name} is the only candidate that raced."
    reason = (
        f"{best.name} has the lowest loss on images that its classifier has not learned from,"
        f" {best.loss:.3f}."
    )
    close = [
        entry.name for entry in entries if entry is not best and _difference(entry, best)[0] <= 0
    ]
    if close:
        reason += f" These images do not tell for sure whether it is better than {_joined(close)}."
    return reason


def _joined(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


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
