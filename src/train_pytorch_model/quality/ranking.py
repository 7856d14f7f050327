"""The one order in which images are put before a person.

`suspects.csv`, `to_label.csv`, the report's suspects and the page of `review` take it from here.
"""

from collections.abc import Iterator

import numpy as np

MIN_PROBABILITY = 0.5  # of being wrong, of a category that is suspected

SAME = 1e-6  # below, features have the same direction, but for rounding


def most_wrong_first(wrong: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the order of K images, (K,), int64: those whose category is most probably wrong first.

    `wrong` (K,) says how probable that is. Of equals, those with the lowest `positions` (K,) are
    first.
    """
    order: np.ndarray = np.lexsort((positions, -wrong))
    return order


def probably_wrong(wrong: np.ndarray, least: float = MIN_PROBABILITY) -> np.ndarray:
    """Return (K,), int64: the images of a data set that are suspects, the most suspicious first.

    `wrong` (N,) says how probable it is that each category is wrong; a suspect has the `least`.
    """
    found = np.flatnonzero(wrong >= least)
    most_first: np.ndarray = found[most_wrong_first(wrong[found], found)]
    return most_first


def uncertain_and_unlike(margins: np.ndarray, features: np.ndarray) -> Iterator[int]:
    """Yield the indices of K images without a category, the one that is most worth a label first.

    The first is the one with the smallest margin between its two most probable categories. Then it
    is always the one that is most uncertain, (K,), 0 to 1, times how unlike it is, by the angle
    between features (K, F), to those before. Images that are uncertain in the same way teach the
    same, and those that are merely unlike all others are often known, or outliers.
    """
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    directions = features / np.maximum(norms, np.finfo(np.float32).tiny)
    order = np.argsort(margins, kind="stable")
    directions = directions[order]
    uncertainties = 1 - margins[order]
    unlikeness = np.ones(len(order), dtype=np.float32)
    is_left = np.ones(len(order), bool)
    for _ in range(len(order)):
        worth = np.where(is_left, uncertainties * unlikeness, -1)
        chosen = int(worth.argmax())
        yield int(order[chosen])
        is_left[chosen] = False
        to_chosen = 1 - directions @ directions[chosen]
        to_chosen[to_chosen < SAME] = 0
        unlikeness = np.minimum(unlikeness, to_chosen)
