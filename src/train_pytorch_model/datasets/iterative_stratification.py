"""A split of images with any number of categories, which has each category in each part.

Iterative stratification (Sechidis et al. 2011, On the Stratification of Multi-label Data): the
rarest category that is left is assigned first, each image to the part that lacks most of it. The
libraries that have it, scikit-multilearn and iterative-stratification, do not keep groups together.
"""

from collections.abc import Sequence

import numpy as np

TIE = 1e-9  # of what a part lacks


def assign_groups(
    labels: np.ndarray,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> np.ndarray:
    """Return the part of each group, (G,), int64, so that parts have these fractions of all.

    Labels are (N, C), bool, of images in the groups `group_of` (N,), int64, from 0 to G - 1. There
    are no fewer groups than parts, and none of these is empty.
    """
    counts = np.zeros((group_of.max() + 1, labels.shape[1] + 1), dtype=np.int64)
    # The last column counts all images: those without a category are assigned by it.
    with_all = np.column_stack([labels, np.ones(len(labels), dtype=bool)])
    np.add.at(counts, group_of, with_all)
    lacking = np.outer(fractions, counts.sum(axis=0)).astype(np.float64)  # (parts, C + 1)

    part_of = np.full(len(counts), -1)
    is_open = np.ones(len(counts), dtype=bool)
    left = counts.sum(axis=0)
    while is_open.any():
        column = _rarest(left)
        members = random.permutation(np.flatnonzero(is_open & (counts[:, column] > 0)))
        # A large group fits where a small one would be in its way.
        members = members[np.argsort(-counts[members, -1], kind="stable")]
        for group in members.tolist():
            part = _neediest(lacking, column, random)
            part_of[group] = part
            lacking[part] -= counts[group]
        is_open[members] = False
        left -= counts[members].sum(axis=0)
    return _without_empty_parts(part_of, counts[:, -1], len(fractions))


def _rarest(left: np.ndarray) -> int:
    """Return the category of which the fewest images are left; the last column without any."""
    present = np.flatnonzero(left[:-1] > 0)
    return int(present[left[present].argmin()]) if len(present) else len(left) - 1


def _neediest(lacking: np.ndarray, column: int, random: np.random.Generator) -> int:
    """Return the part that lacks most of a column; of equal ones, most of all images."""
    best = np.flatnonzero(lacking[:, column] >= lacking[:, column].max() - TIE)
    best = best[lacking[best, -1] >= lacking[best, -1].max() - TIE]
    return int(best[random.integers(len(best))])


def _without_empty_parts(part_of: np.ndarray, sizes: np.ndarray, num_parts: int) -> np.ndarray:
    """Return the parts, of which each empty one gets the smallest group of the largest part."""
    part_of = part_of.copy()
    for part in range(num_parts):
        if (part_of == part).any():
            continue
        largest = int(np.bincount(part_of, minlength=num_parts).argmax())
        members = np.flatnonzero(part_of == largest)
        part_of[members[sizes[members].argmin()]] = part
    return part_of
