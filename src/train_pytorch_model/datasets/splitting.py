"""Split an image directory into two disjoint parts."""

from collections.abc import Iterator
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

OUTPUTS = ("output_1", "output_2")


def split(
    images: ImageDirectory, fraction: float, seed: int, stratified: bool
) -> tuple[ImageDirectory, ImageDirectory]:
    """Return two parts, in the order of the directory; `fraction`, in (0, 1), of the images are in the first.

    If stratified, this also holds for each category, up to rounding: one of two or more images has at least
    one in each part. Rows of the same file stay together, so that no training image leaks into validation.
    Raises `InvalidDatasetError` for fewer than two images.
    """
    firsts = first_rows(np.fromiter(map(hash, images.file_names), dtype=np.int64, count=len(images)))
    files = np.flatnonzero(firsts == np.arange(len(images)))
    if len(files) < 2:
        raise InvalidDatasetError(images.title, "it has one image, but each part of a split needs one.")
    is_grouped = stratified and bool(images.categories)
    groups = images.class_indices[files] if is_grouped else np.zeros(len(files), dtype=np.int32)
    shuffled = np.random.default_rng(derive_seed(seed, "split")).permutation(len(files))
    shuffled = shuffled[np.argsort(groups[shuffled], kind="stable")]  # by group, shuffled within each
    sizes = np.bincount(groups)
    places = np.arange(len(files)) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # of each within its group
    chosen = shuffled[places < np.repeat(first_counts(sizes, fraction), sizes)]
    is_first = np.zeros(len(images), dtype=bool)
    is_first[files[chosen]] = True
    is_first = is_first[firsts]  # the other rows of a file follow its first one
    return images.select(np.flatnonzero(is_first)), images.select(np.flatnonzero(~is_first))


def first_counts(sizes: np.ndarray, fraction: float) -> np.ndarray:
    """Return (number of groups,), int64: how many of each group are in the first part.

    Each is `fraction * size`, rounded by the largest-remainder method so that the total is right, too.
    Neither part of a group of two or more is empty, nor is either part of the whole.
    """
    total = int(sizes.sum())
    exact = fraction * sizes
    counts = np.floor(exact).astype(np.int64).clip(np.minimum(sizes, 2) // 2, np.maximum(sizes - 1, 0))
    missing = min(max(round(fraction * total), 1), total - 1) - int(counts.sum())
    remainders = exact - counts
    highest = np.where(sizes > 1, sizes - 1, sizes)
    candidates = np.flatnonzero((remainders > 0) & (counts < highest))
    up = candidates[np.argsort(-remainders[candidates], kind="stable")][: max(missing, 0)]
    counts[up] += 1
    return counts


def categories_in_one_part(parts: tuple[ImageDirectory, ImageDirectory]) -> list[str]:
    """Return the categories with images in only one part, which cannot be both trained and validated."""
    first, second = (part.class_counts() > 0 for part in parts)
    return [parts[0].categories[index] for index in np.flatnonzero(first != second)]


def write_parts(parts: tuple[ImageDirectory, ImageDirectory], outputs: tuple[Path, Path]) -> None:
    """Write both parts or neither, with files and rows unchanged.

    Raises `InvalidDatasetError` for an image that cannot be read, `OutputDirectoryError`.
    """
    schema_content = parts[0].read_schema()
    first, second = (
        writing_image_directory(output, schema_content, name)
        for output, name in zip(outputs, OUTPUTS, strict=True)
    )
    made = missing_directories(outputs[1])
    with ExitStack() as undo:
        with progress_bar(sum(map(len, parts)), "Splitting") as bar, first as first_writer:
            _fill(first_writer, parts[0], bar)
            with second as second_writer:
                _fill(second_writer, parts[1], bar)
            undo.callback(remove_output, outputs[1], made)  # complete, but the first is not yet
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
