"""Split an image directory into two or three disjoint parts."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from train_pytorch_model.formats.copying import UnreadableFileError, copy_file, copy_threads, in_order
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    ImageDirectoryWriter,
    writing_image_directory,
)
from train_pytorch_model.formats.listing import first_rows
from train_pytorch_model.formats.outputs import missing_directories, remove_output
from train_pytorch_model.machine.console import Bar, progress_bar
from train_pytorch_model.words.errors import InvalidDatasetError
from train_pytorch_model.words.seeds import derive_seed

OUTPUTS = ("output_1", "output_2", "output_3")


def split(
    images: ImageDirectory, fractions: Sequence[float], seed: int, stratified: bool
) -> list[ImageDirectory]:
    """Return a part for each of the fractions, which add up to 1, in the order of the directory.

    If stratified, each category is split by them, up to rounding: one of as many images as parts has at least
    one in each. Rows of the same file stay together, so that no training image leaks into validation.
    Raises `InvalidDatasetError` for fewer images than parts.
    """
    parts, rest = [], images
    for index, fraction in enumerate(fractions[:-1]):
        others = len(fractions) - 1 - index
        first, rest = _split_off(rest, fraction / (1 - sum(fractions[:index])), others, seed, stratified)
        parts.append(first)
    return [*parts, rest]


def _split_off(
    images: ImageDirectory, fraction: float, others: int, seed: int, stratified: bool
) -> tuple[ImageDirectory, ImageDirectory]:
    """Return a first part and the rest, which is enough for `others` parts."""
    firsts = first_rows(np.fromiter(map(hash, images.file_names), dtype=np.int64, count=len(images)))
    files = np.flatnonzero(firsts == np.arange(len(images)))
    if len(files) <= others:
        raise InvalidDatasetError(images.title, "it has too few images: each part of a split needs one.")
    is_grouped = stratified and bool(images.categories)
    groups = images.class_indices[files] if is_grouped else np.zeros(len(files), dtype=np.int32)
    shuffled = np.random.default_rng(derive_seed(seed, "split")).permutation(len(files))
    shuffled = shuffled[np.argsort(groups[shuffled], kind="stable")]  # by group, shuffled within each
    sizes = np.bincount(groups)
    places = np.arange(len(files)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each within its group
    chosen = shuffled[places < np.repeat(first_counts(sizes, fraction, others), sizes)]
    is_first = np.zeros(len(images), dtype=bool)
    is_first[files[chosen]] = True
    is_first = is_first[firsts]  # the other rows of a file follow its first one
    return images.select(np.flatnonzero(is_first)), images.select(np.flatnonzero(~is_first))


def first_counts(sizes: np.ndarray, fraction: float, others: int = 1) -> np.ndarray:
    """Return (number of groups,), int64: how many of each group are in the first part.

    Each is `fraction * size`, rounded by the largest-remainder method so that the total is right, too.
    The first part of a group of two or more is not empty, and the rest has one for each of the `others`, if
    the group is large enough. The same holds for the whole.
    """
    total = int(sizes.sum())
    exact = fraction * sizes
    lowest = np.minimum(sizes, 2) // 2
    counts = np.floor(exact).astype(np.int64).clip(lowest, np.maximum(sizes - others, lowest))
    missing = min(max(round(fraction * total), 1), total - others) - int(counts.sum())
    remainders = exact - counts
    highest = np.where(sizes > 1, np.maximum(sizes - others, 1), sizes)
    candidates = np.flatnonzero((remainders > 0) & (counts < highest))
    up = candidates[np.argsort(-remainders[candidates], kind="stable")][: max(missing, 0)]
    counts[up] += 1
    return counts


def categories_not_in_all(parts: Sequence[ImageDirectory]) -> list[str]:
    """Return the categories that have images in some parts only, and so cannot be trained and validated."""
    has_images = np.stack([part.class_counts() > 0 for part in parts])  # (parts, categories)
    indices = np.flatnonzero(has_images.any(axis=0) & ~has_images.all(axis=0))
    return [parts[0].categories[index] for index in indices]


def write_parts(parts: Sequence[ImageDirectory], outputs: Sequence[Path]) -> None:
    """Write all parts or none, with files and rows unchanged.

    Raises `InvalidDatasetError` for an image that cannot be read, `OutputDirectoryError`.
    """
    with progress_bar(sum(map(len, parts)), "Splitting") as bar:
        # In the same order whichever is first: of two commands with the same outputs, one gets them all.
        _write(sorted(zip(parts, outputs, OUTPUTS, strict=False), key=lambda job: job[1].resolve()), bar)


def _write(jobs: Sequence[tuple[ImageDirectory, Path, str]], bar: Bar) -> None:
    """Open all outputs, fill and complete the last, then the one before it."""
    (part, output, name), *others = jobs
    with ExitStack() as undo:
        with writing_image_directory(output, part.read_schema(), name) as writer:
            if others:
                made = [missing_directories(other) for _, other, _ in others]
                _write(others, bar)
                for (_, other, _), directories in zip(others, made, strict=True):
                    undo.callback(remove_output, other, directories)  # complete, but this one is not yet
            _fill(writer, part, bar)
        undo.pop_all()


def _fill(writer: ImageDirectoryWriter, part: ImageDirectory, bar: Bar) -> None:
    def copy(item: tuple[str | None, Path, dict[str, Any]]) -> dict[str, Any]:
        original, target, row = item
        if original is not None:
            try:
                copy_file(part.root / original, target)
            except UnreadableFileError as error:
                raise InvalidDatasetError(part.title, f"image {original!r}: {error}.") from error
        return row

    with copy_threads() as pool:
        for row in in_order(pool, copy, _copies(writer, part)):
            writer.add(row)
            bar.advance()


def _copies(
    writer: ImageDirectoryWriter, part: ImageDirectory
) -> Iterator[tuple[str | None, Path, dict[str, Any]]]:
    """Yield (the image's name, its target, its row); no name if an earlier row has copied the file."""
    taken: set[str] = set()
    for name, row in zip(part.file_names, part.read_listed_rows(), strict=True):
        target = writer.place(row)
        is_new = str(target) not in taken
        taken.add(str(target))
        yield (name if is_new else None), target, row
