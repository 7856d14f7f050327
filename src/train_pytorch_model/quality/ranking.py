"""The one order in which images are put before a person.

`suspects.csv`, `to_label.csv`, the report's suspects and the page of `review` take it from here.
"""

import numpy as np

MIN_PROBABILITY = 0.5  # of being wrong, of a category that is suspected


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
