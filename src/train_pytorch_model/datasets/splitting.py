"""Split an image directory into disjoint parts; what belongs together stays in one part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.config.wording import assignment, counted, parameter
from train_pytorch_model.datasets.grouping import group_images
from train_pytorch_model.datasets.iterative_stratification import assign_groups
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.label_kinds import LabelKind, OnePerImage, SetsPerImage

UNASSIGNED = -1
TINY = 1e-9  # images


def split(
    images: ImageDirectory,
    fractions: Sequence[float],
    seed: int,
    stratified: bool,
    groups: np.ndarray | None = None,
) -> list[ImageDirectory]:
    """Return a part for each of the fractions, which add up to 1, in the order of the directory.

    Images of the same number in `groups` (N,) are in the same part: by default, rows of the same
    file. If stratified, each category is split by the fractions, as far as groups allow: without
    any, up to rounding, and one of as many images as parts has at least one in each. Of
    images with any number of categories, each is split as well as the others allow. Raises
    `InvalidDatasetError` for fewer groups than parts.
    """
    labels = group_images(images, by_twins=False).labels if groups is None else groups
    _, group_of = np.unique(labels, return_inverse=True)
    num_groups = int(group_of.max()) + 1
    if num_groups < len(fractions):
        is_grouped = groups is not None and len(images) >= len(fractions)
        raise _too_few(images, num_groups if is_grouped else None, len(fractions))
    random = np.random.default_rng(derive_seed(seed, "split"))
    assign = _ASSIGN[type(images.labels)] if stratified and images.categories else _assign_evenly
    part_of = assign(images, group_of, fractions, random)
    return [images.select(np.flatnonzero(part_of == part)) for part in range(len(fractions))]


def _assign_evenly(
    images: ImageDirectory,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> np.ndarray:
    """Return the part of each image, (N,), int64, whatever categories they have."""
    return _assign_by(np.zeros(len(images), dtype=np.int32), group_of, fractions, random)


def _assign_by_category(
    images: ImageDirectory,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> np.ndarray:
    """Return the part of each image, (N,), int64, with the same fractions of each category."""
    return _assign_by(images.class_indices, group_of, fractions, random)


def _assign_by_lists(
    images: ImageDirectory,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> np.ndarray:
    """Return the part of each image, (N,), int64, of any number of categories each."""
    part_of_group = assign_groups(images.marks(np.arange(len(images))), group_of, fractions, random)
    part_of: np.ndarray = part_of_group[group_of]
    return part_of


_ASSIGN: Mapping[type[LabelKind], Callable[..., np.ndarray]] = {
    OnePerImage: _assign_by_category,
    SetsPerImage: _assign_by_lists,
}


def _assign_by(
    categories: np.ndarray,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> np.ndarray:
    assignment = _assign_groups(categories, group_of, fractions, random)
    _assign_singles(assignment, categories, random)
    return assignment.part_of


def _too_few(images: ImageDirectory, num_groups: int | None, num_parts: int) -> InvalidDatasetError:
    """Return the error of fewer images, or groups of them if there are any, than parts."""
    if num_groups is None:
        reason = "it has too few images: each part of a split needs one."
        return InvalidDatasetError(images.title, reason)
    groups = counted(num_groups, "group", "groups")
    return InvalidDatasetError(
        images.title,
        f"it has too few groups of images: its {len(images):,} are {groups}, and each of"
        f" {num_parts} parts needs one. Images that look alike, such as those of a fixed camera,"
        f" or have the same name by {parameter('group_by')}, are a group.",
        f"{assignment('group_by', 'none')} splits them anyway: the test then has images that"
        " look like those of training, and its accuracy may be too good.",
    )


@dataclass(frozen=True)
class _Assignment:
    """Which image goes to which part, while that is decided.

    The last column of the two tables counts all images, so that no part remains empty.
    """

    part_of: np.ndarray  # (N,), int64: the part of each image; UNASSIGNED if it is still open
    wanted: np.ndarray  # (parts, categories + 1), float64: how many images each part should have
    counts: np.ndarray  # (parts, categories + 1), int64: how many of them groups have brought it


def _assign_groups(
    categories: np.ndarray,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> _Assignment:
    """Assign groups of two or more images, the largest first, each to the part that needs it most.

    Like scikit-learn's `StratifiedGroupKFold`, but for parts of any fractions. Images that are
    alone remain open.
    """
    totals = np.append(np.bincount(categories), len(categories))
    all_images = len(totals) - 1  # the last column
    wanted = np.outer(fractions, totals)
    counts = np.zeros(wanted.shape, dtype=np.int64)
    sizes = np.bincount(group_of)
    cells = np.unique(np.stack([group_of, categories], axis=1), axis=0)
    # How many groups with images of each category are not assigned yet.
    open_groups = np.append(np.bincount(cells[:, 1]), len(sizes))
    part_of = np.full(len(categories), UNASSIGNED)
    by_group = np.argsort(group_of, kind="stable")
    ends = np.cumsum(sizes)
    large = random.permutation(np.flatnonzero(sizes > 1))
    for group in large[np.argsort(-sizes[large], kind="stable")].tolist():
        rows = by_group[ends[group] - sizes[group] : ends[group]]
        present, group_counts = np.unique(categories[rows], return_counts=True)
        columns = np.append(present, all_images)
        group_counts = np.append(group_counts, sizes[group])
        part = _neediest_part(
            group_counts, wanted[:, columns], counts[:, columns], open_groups[columns]
        )
        part_of[rows] = part
        counts[part, columns] += group_counts
        open_groups[columns] -= 1
    return _Assignment(part_of, wanted, counts)


def _neediest_part(
    group_counts: np.ndarray, wanted: np.ndarray, counts: np.ndarray, open_groups: np.ndarray
) -> int:
    """Return the part to which a group goes.

    First, one that has none of a category, or no image at all, while there may be no other group
    for it; then the one that exceeds what it should have by the least; then the one that needs most
    of what the group has. All arrays have the K columns of the group's categories and of all
    images: `group_counts` and `open_groups` (K,), `wanted` and `counts` (parts, K).
    """
    needed = wanted - counts
    excess = np.maximum(group_counts - needed, 0).sum(axis=1)
    lacks = counts == 0
    is_due = lacks & (open_groups <= lacks.sum(axis=0))
    need = (needed / np.maximum(wanted, TINY)) @ group_counts  # next to 0 it would overflow
    lacks_category = is_due[:, :-1].any(axis=1)
    lacks_all = is_due[:, -1]
    ranked = np.lexsort([-need, excess, ~lacks_category, ~lacks_all])
    return int(ranked[0])


def _assign_singles(
    assignment: _Assignment, categories: np.ndarray, random: np.random.Generator
) -> None:
    """Give each part the images that groups have left it short of, at random within a category."""
    part_of = assignment.part_of
    num_parts, num_columns = assignment.wanted.shape
    missing = np.maximum(assignment.wanted - assignment.counts, 0)
    lacks = assignment.counts == 0
    for part in range(num_parts - 1):
        singles = np.flatnonzero(part_of == UNASSIGNED)
        shuffled = random.permutation(singles)
        # By category, shuffled in each.
        shuffled = shuffled[np.argsort(categories[shuffled], kind="stable")]
        sizes = np.bincount(categories[singles], minlength=num_columns - 1)
        starts = np.cumsum(sizes) - sizes
        rank = np.arange(len(singles)) - np.repeat(starts, sizes)  # within the image's category
        fraction = missing[part] / np.maximum(missing[part:].sum(axis=0), TINY)
        counts = first_counts(sizes, fraction[:-1], lacks[part:])
        # Parts that are still empty need the others.
        spare = len(singles) - int(lacks[part + 1 :, -1].sum())
        chosen = shuffled[rank < np.repeat(counts, sizes)]
        part_of[chosen[: max(spare, 0)]] = part
    part_of[part_of == UNASSIGNED] = num_parts - 1


def first_counts(sizes: np.ndarray, fraction: float | np.ndarray, lacks: np.ndarray) -> np.ndarray:
    """Return (number of categories,), int64: how many of each category are in the first part.

    Each is `fraction * size`, rounded by the largest-remainder method so that the total is right,
    too. The first part of a category of two or more is not empty, and each other part has one, if
    the category is large enough. The same holds for the whole. That is for the parts and categories
    for which `lacks`, bool (parts, categories + 1), is true.
    """
    others = lacks[1:].sum(axis=0)
    total = int(sizes.sum())
    exact = fraction * sizes

    lowest = np.minimum(sizes, 2) // 2 * lacks[0, :-1]
    highest = np.maximum(sizes - others[:-1], lowest)
    counts = np.floor(exact).astype(np.int64).clip(lowest, highest)
    at_least = int(lacks[0, -1])
    at_most = total - int(others[-1])
    wanted = min(max(round(float(exact.sum())), at_least), at_most)

    # The largest remainders are rounded up until the total is reached.
    missing = wanted - int(counts.sum())
    remainders = exact - counts
    highest = np.where(sizes > 1, np.maximum(sizes - others[:-1], 1), sizes)
    candidates = np.flatnonzero((remainders > 0) & (counts < highest))
    largest_first = candidates[np.argsort(-remainders[candidates], kind="stable")]
    counts[largest_first[: max(missing, 0)]] += 1
    return counts
