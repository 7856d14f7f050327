"""A split in which images stay where an earlier split had them, and new ones are split as usual."""

from collections.abc import Mapping, Sequence

import numpy as np

from train_pytorch_model.datasets.splitting import split
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.table_splits import NO_PART


def split_as_before(
    images: ImageDirectory,
    fractions: Sequence[float],
    seed: int,
    groups: np.ndarray,
    order: Sequence[str],
    earlier: Mapping[str, str],
) -> list[ImageDirectory]:
    """Return the parts named by `order`, training first, of these fractions of the new images.

    Images of the same number in `groups` (N,) are in the same part, but for those that were in
    different ones. `earlier` has the part of each image's file name. Raises `InvalidDatasetError`.
    """
    if not earlier:
        return split(images, fractions, seed, stratified=True, groups=groups)
    known = _parts_as_before(images, groups, order, earlier)
    part_of = _fill_parts(images, groups, known, fractions, seed)
    return [images.select(np.flatnonzero(part_of == part)) for part in range(len(order))]


def _parts_as_before(
    images: ImageDirectory, groups: np.ndarray, order: Sequence[str], earlier: Mapping[str, str]
) -> np.ndarray:
    """Return (N,), int64: the index in `order` of the part of each image; `NO_PART` if it is new.

    A group goes where any of its images was held out.
    """
    index_of = {part: index for index, part in enumerate(order)}
    parts = (index_of.get(earlier.get(name, ""), NO_PART) for name in images.file_names)
    part_of = np.fromiter(parts, np.int64, len(images))
    _, group_of = np.unique(groups, return_inverse=True)
    part_of_group = np.full(group_of.max() + 1, NO_PART, dtype=np.int64)
    np.maximum.at(part_of_group, group_of, part_of)
    return np.where(part_of == NO_PART, part_of_group[group_of], part_of)


def _fill_parts(
    images: ImageDirectory,
    groups: np.ndarray,
    known: np.ndarray,
    fractions: Sequence[float],
    seed: int,
) -> np.ndarray:
    """Return the parts (N,) of all images: those `known`, and a split of the new ones."""
    part_of = known.copy()
    new = np.flatnonzero(known == NO_PART)
    if len(np.unique(groups[new])) < len(fractions):
        part_of[new] = 0
        return part_of
    parts = split(images.select(new), fractions, seed, stratified=True, groups=groups[new])
    for part, selected in enumerate(parts):
        part_of[images.rows.searchsorted(selected.rows)] = part
    return part_of
