"""Split an image directory into disjoint parts; what belongs together stays in one part.

That is twins, rows of the same file, and images that agree in their names as the user says.
"""

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.data.decoder_processes import Decoders
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats import image_directory
from train_pytorch_model.formats.image_directory import ImageDirectory, writing_image_directory
from train_pytorch_model.formats.listing import repeats_in
from train_pytorch_model.formats.outputs import empty_directory, missing_directories, remove_empty
from train_pytorch_model.formats.writing import UnreadableFileError, copy_file, in_order
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.machine.console import Bar, progress_bar
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.quality.identical_files import identical_pairs
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES, perceptual_hash

PARENT = "parent"
HASHED_SIDE = 64  # px: a JPEG is decoded at an eighth of its size, in a third of the time
UNASSIGNED = -1
TINY = 1e-9  # images
OUTPUTS = ("output_1", "output_2", "output_3")


@dataclass(frozen=True)
class Groups:
    """Which images stay together."""

    labels: np.ndarray  # (N,), int64: the index of the first image of each image's group
    num_twins: int = 0  # images that look like an earlier one
    num_named: int = 0  # groups by name; 0 if names do not matter
    num_unmatched: int = (
        0  # images whose names the expression does not match; each is a group by itself
    )


def group_images(images: ImageDirectory, group_by: str = "", by_twins: bool = True) -> Groups:
    """Group the rows of each file, twins, and what has the same name by `group_by`.

    That is `parent`, for the folder in which an image was before it was converted, or a regular
    expression, whose groups, or else whole match, in that name count. Raises `ParameterError` for
    an invalid one.
    """
    links = [_links(images.file_names)]
    names = [""] * len(images)
    if group_by:
        names = _group_names(images, group_by)
        matched = np.flatnonzero([bool(name) for name in names])
        links.append(matched[_links([names[index] for index in matched.tolist()])])
    twins = find_looking_alike(images) if by_twins else np.empty((0, 2), np.int64)
    return Groups(
        labels=connect(len(images), np.concatenate([*links, twins])),
        num_twins=len(np.unique(twins[:, 1])),
        num_named=len(set(filter(None, names))),
        num_unmatched=names.count("") if group_by else 0,
    )


def connect(count: int, links: np.ndarray) -> np.ndarray:
    """Return (count,), int64: the lowest index to which each is connected by the links (L, 2)."""
    labels = np.arange(count)
    one, other = links.T
    while True:
        lowest = np.minimum(labels[one], labels[other])
        lower = labels.copy()
        np.minimum.at(lower, one, lowest)
        np.minimum.at(lower, other, lowest)
        lower = lower[lower]
        if (lower == labels).all():
            return labels
        labels = lower


def find_looking_alike(images: ImageDirectory) -> np.ndarray:
    """Return pairs of images that look alike, or of identical files: (P, 2), int64, ascending in
    each row.
    """

    def hash_of(index: int) -> np.ndarray:
        try:
            return perceptual_hash(decoders.decode(images.path(index), HASHED_SIDE))
        except UnreadableImageError:  # training reports it
            return np.zeros(NUM_BYTES, np.uint8)

    hashes = np.empty((len(images), NUM_BYTES), np.uint8)
    with (
        closing(Decoders()) as decoders,
        in_order(hash_of, range(len(images)), usable_cores()) as hashed,
        progress_bar(len(images), "Comparing") as bar,
    ):
        for index, each in enumerate(hashed):
            hashes[index] = each
            bar.advance()
    unhashed = np.flatnonzero(~hashes.any(axis=1))  # their files can still be identical
    identical = identical_pairs([images.path(index) for index in unhashed.tolist()])
    return np.concatenate([find_pairs(hashes).images, unhashed[identical]])


def _links(names: Sequence[str]) -> np.ndarray:
    """Return (L, 2), int64: for each name that has occurred before, the first one's index and its
    own.
    """
    again, firsts = repeats_in(np.fromiter(map(hash, names), dtype=np.int64, count=len(names)))
    return np.stack([firsts, again], axis=1)


def _group_names(images: ImageDirectory, group_by: str) -> list[str]:
    """Return the name of each image's group; empty if the expression does not match."""
    originals = images.original_names(np.arange(len(images)))
    names = [original or name for original, name in zip(originals, images.file_names, strict=True)]
    if group_by == PARENT:
        return [str(PurePosixPath(name).parent) for name in names]
    try:
        expression = re.compile(group_by)
    except re.error as error:
        raise ParameterError(
            f"{parameter('group_by')} {group_by!r} is not a regular expression: {error}."
        ) from error
    found = (expression.search(name) for name in names)
    return [
        "\0".join(each or "" for each in match.groups()) or match[0] if match else ""
        for match in found
    ]


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
    any, up to rounding, and one of as many images as parts has at least one in each. Raises
    `InvalidDatasetError` for fewer groups than parts.
    """
    kind = "images" if groups is None or len(images) < len(fractions) else "groups of images"
    labels = group_images(images, by_twins=False).labels if groups is None else groups
    _, group_of = np.unique(labels, return_inverse=True)
    if group_of.max() + 1 < len(fractions):
        raise InvalidDatasetError(
            images.title, f"it has too few {kind}: each part of a split needs one."
        )
    is_grouped = stratified and bool(images.categories)
    categories = images.class_indices if is_grouped else np.zeros(len(images), dtype=np.int32)
    random = np.random.default_rng(derive_seed(seed, "split"))
    part_of, wanted, have = _assign_groups(categories, group_of, fractions, random)
    missing, lacks = np.maximum(wanted - have, 0), have == 0
    for part in range(len(fractions) - 1):
        singles = np.flatnonzero(part_of == UNASSIGNED)
        shuffled = random.permutation(singles)
        shuffled = shuffled[
            np.argsort(categories[shuffled], kind="stable")
        ]  # by category, shuffled in each
        sizes = np.bincount(categories[singles], minlength=wanted.shape[1] - 1)
        places = np.arange(len(singles)) - np.repeat(
            np.cumsum(sizes) - sizes, sizes
        )  # within its category
        fraction = missing[part] / np.maximum(missing[part:].sum(axis=0), TINY)
        counts = first_counts(sizes, fraction[:-1], lacks[part:])
        spare = len(singles) - int(
            lacks[part + 1 :, -1].sum()
        )  # not needed by parts that are still empty
        part_of[shuffled[places < np.repeat(counts, sizes)][: max(spare, 0)]] = part
    part_of[part_of == UNASSIGNED] = len(fractions) - 1
    return [images.select(np.flatnonzero(part_of == part)) for part in range(len(fractions))]


def _assign_groups(
    categories: np.ndarray,
    group_of: np.ndarray,
    fractions: Sequence[float],
    random: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Assign groups of two or more images, the largest first, each to the part that needs it most.

    Like scikit-learn's `StratifiedGroupKFold`, but for parts of any fractions. Return the part of
    each image (N,), `UNASSIGNED` if it is alone, and how many images of each category the parts
    should have, and have by now: (parts, categories + 1) each. The last column counts all images,
    so that no part remains empty.
    """
    totals = np.append(np.bincount(categories), len(categories))
    wanted, have = (
        np.outer(fractions, totals),
        np.zeros((len(fractions), len(totals)), dtype=np.int64),
    )
    sizes = np.bincount(group_of)
    cells = np.unique(np.stack([group_of, categories], axis=1), axis=0)
    left = np.append(np.bincount(cells[:, 1]), len(sizes))  # groups with images of each category
    part_of = np.full(len(categories), UNASSIGNED)
    by_group, ends = np.argsort(group_of, kind="stable"), np.cumsum(sizes)
    large = random.permutation(np.flatnonzero(sizes > 1))
    for group in large[np.argsort(-sizes[large], kind="stable")].tolist():
        rows = by_group[ends[group] - sizes[group] : ends[group]]
        present, counts = np.unique(categories[rows], return_counts=True)
        columns, counts = np.append(present, len(totals) - 1), np.append(counts, sizes[group])
        needed = wanted[:, columns] - have[:, columns]  # (parts, columns)
        excess = np.maximum(counts - needed, 0).sum(axis=1)
        lacks = have[:, columns] == 0
        is_due = lacks & (
            left[columns] <= lacks.sum(axis=0)
        )  # there may be no other group for the part
        need = (
            needed / np.maximum(wanted[:, columns], 1e-9)
        ) @ counts  # next to 0 it would overflow
        part = np.lexsort([-need, excess, ~is_due[:, :-1].any(axis=1), ~is_due[:, -1]])[0]
        part_of[rows] = part
        have[part, columns] += counts
        left[columns] -= 1
    return part_of, wanted, have


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
    counts = np.floor(exact).astype(np.int64).clip(lowest, np.maximum(sizes - others[:-1], lowest))
    wanted = min(max(round(float(exact.sum())), int(lacks[0, -1])), total - int(others[-1]))
    missing = wanted - int(counts.sum())
    remainders = exact - counts
    highest = np.where(sizes > 1, np.maximum(sizes - others[:-1], 1), sizes)
    candidates = np.flatnonzero((remainders > 0) & (counts < highest))
    up = candidates[np.argsort(-remainders[candidates], kind="stable")][: max(missing, 0)]
    counts[up] += 1
    return counts


def write_parts(parts: Sequence[ImageDirectory], outputs: Sequence[Path]) -> None:
    """Write all parts or none, unchanged. Raises `InvalidDatasetError`, `OutputDirectoryError`."""
    with progress_bar(sum(map(len, parts)), "Splitting") as bar:
        # In the same order whichever is first: of two commands with the same outputs, one gets them
        # all.
        _write(
            sorted(zip(parts, outputs, OUTPUTS, strict=False), key=lambda job: job[1].resolve()),
            bar,
        )


def _write(jobs: Sequence[tuple[ImageDirectory, Path, str]], bar: Bar) -> None:
    """Open all outputs, fill and complete the last, then the one before it."""
    (part, output, name), *others = jobs
    with ExitStack() as undo:
        with writing_image_directory(output, part.read_schema(), name) as writer:
            if others:
                made = [missing_directories(other) for _, other, _ in others]
                _write(others, bar)
                for (_, other, _), directories in zip(others, made, strict=True):
                    undo.callback(remove_empty, directories)
                    undo.callback(empty_directory, other)  # complete, but this one is not yet
            _fill(writer, part, bar)
        undo.pop_all()


def _fill(writer: image_directory.ImageDirectoryWriter, part: ImageDirectory, bar: Bar) -> None:
    targets: set[str] = set()

    def new_target(row: dict[str, Any]) -> Path | None:
        """Return where to copy the file of a row; None if an earlier row has copied it."""
        target = writer.place(row)
        is_new = str(target) not in targets
        targets.add(str(target))
        return target if is_new else None

    def copy(item: tuple[str, Path | None, dict[str, Any]]) -> dict[str, Any]:
        name, target, row = item
        try:
            if target is not None:
                copy_file(part.root / name, target)
        except UnreadableFileError as error:
            raise InvalidDatasetError(part.title, f"image {name!r}: {error}.") from error
        return row

    listed = zip(part.file_names, part.read_listed_rows(), strict=True)
    with in_order(copy, ((name, new_target(row), row) for name, row in listed)) as rows:
        for row in rows:
            writer.add(row)
            bar.advance()
