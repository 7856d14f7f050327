"""Read image headers before anything expensive starts: image sizes, and files that are not images."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.writing import table_of, write_csv
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, read_size
from train_pytorch_model.machine.cores import usable_cores
from train_pytorch_model.words.errors import InvalidDatasetError, bulleted
from train_pytorch_model.words.wording import counted

BAD_IMAGES = "bad_images.csv"
MAX_HEADERS = 20_000  # a header costs 0.05 ms; beyond, an evenly spaced sample of this many is read
HEADERS_AT_ONCE = 100  # read by one thread
MAX_BAD_SHARE = 0.05  # of a category or of the whole dataset …
MIN_BAD_IMAGES = 10  # … and at least this many unreadable images make a dataset too damaged to train on
COMMON_SHARE = 0.99  # of the images must have a size for it to be the common size


@dataclass(frozen=True)
class BadImage:
    """An image that was left out, and why."""

    port: str
    file_name: str
    category: str
    reason: str
    original: str = ""
    """The file's name before it was converted or split; empty if unknown."""

    def __str__(self) -> str:
        """The image as messages show it, without the port."""
        original = f", originally {self.original!r}" if self.original else ""
        return f"{self.file_name!r}{original}: {self.reason}"


@dataclass(frozen=True)
class Headers:
    """The sizes and unreadable images found in the headers of a directory."""

    common_size: tuple[int, int] | None
    """(height, width) in pixels of nearly all images, upright; None when they differ."""
    sizes: Mapping[tuple[int, int], int]
    """(height, width) → how many of the images have it."""
    bad: dict[int, str]
    """Index of an unreadable image → the reason."""


LeaveOut = Callable[[ImageDirectory, dict[int, str]], tuple[ImageDirectory, list[BadImage]]]
"""`without_bad_images` or `readable_images`."""


def read_headers(directory: ImageDirectory) -> Headers:
    """Read the headers of all images, or of a fixed sample of a large directory."""
    indices = evenly_spaced(len(directory), MAX_HEADERS).tolist()
    sizes: Counter[tuple[int, int]] = Counter()
    bad: dict[int, str] = {}
    # One future for many headers: each takes 1 kB.
    tasks = [indices[start : start + HEADERS_AT_ONCE] for start in range(0, len(indices), HEADERS_AT_ONCE)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        results = pool.map(lambda task: [_size_or_reason(directory, index) for index in task], tasks)
        for index, result in zip(indices, chain.from_iterable(results), strict=True):
            if isinstance(result, str):
                bad[index] = result
            else:
                sizes[result] += 1
    common = sizes.most_common(1)
    is_common = bool(common) and common[0][1] >= COMMON_SHARE * sizes.total()
    return Headers(common_size=common[0][0] if is_common else None, sizes=sizes, bad=bad)


def without_bad_images(
    directory: ImageDirectory, bad: dict[int, str]
) -> tuple[ImageDirectory, list[BadImage]]:
    """The directory without its unreadable images, and a record of each.

    Raises `InvalidDatasetError` if there are too many, or all images of a category are unreadable.
    """
    kept, records = readable_images(directory, bad)
    if not bad:
        return kept, records
    hint = _hint(records)
    if directory.categories:
        before = directory.class_counts()
        lost = before - kept.class_counts()
        emptied = _names(directory, (before > 0) & (lost == before))
        if emptied:
            raise InvalidDatasetError(
                directory.title, f"no image can be read of category {', '.join(emptied)}.", hint
            )
        damaged = _names(directory, (lost >= MIN_BAD_IMAGES) & (lost > MAX_BAD_SHARE * before))
        if damaged:
            raise InvalidDatasetError(
                directory.title,
                f"more than {MAX_BAD_SHARE:.0%} of the images of category {', '.join(damaged)}"
                " cannot be read.",
                hint,
            )
    if len(bad) >= MIN_BAD_IMAGES and len(bad) > MAX_BAD_SHARE * len(directory):
        raise InvalidDatasetError(
            directory.title, f"{len(bad)} of {len(directory)} images cannot be read.", hint
        )
    return kept, records


def readable_images(directory: ImageDirectory, bad: dict[int, str]) -> tuple[ImageDirectory, list[BadImage]]:
    """Like `without_bad_images`, without a limit. Raises `InvalidDatasetError` if all are unreadable."""
    indices = np.array(sorted(bad), np.int64)
    records = [
        _record(directory, index, bad[index], original)
        for index, original in zip(indices.tolist(), directory.original_names(indices), strict=True)
    ]
    if len(bad) == len(directory):
        raise InvalidDatasetError(directory.title, "none of its images can be read.", _hint(records))
    return directory.without(indices), records


def left_out(bad_images: Sequence[BadImage]) -> str:
    """The text of a warning that lists the images that were left out."""
    lines = [f"{image.port}: {image}" for image in bad_images]
    subject = counted(len(lines), "unreadable image is", "unreadable images are")
    return f"{subject} left out:{bulleted(lines)}"


def write_bad_images(path: Path, bad_images: Sequence[BadImage]) -> None:
    """Write a CSV file with a row per image that was left out, and the reason."""
    write_csv(path, table_of(BadImage, bad_images))


def _size_or_reason(directory: ImageDirectory, index: int) -> tuple[int, int] | str:
    try:
        return read_size(directory.path(index))
    except UnreadableImageError as error:
        return str(error)


def _hint(records: Sequence[BadImage]) -> str:
    return f"Unreadable images:{bulleted([str(record) for record in records])}\nReplace or remove them."


def _record(directory: ImageDirectory, index: int, reason: str, original: str) -> BadImage:
    category = int(directory.class_indices[index])
    return BadImage(
        port=directory.port,
        file_name=directory.file_names[index],
        category=directory.categories[category] if directory.categories else "",
        reason=reason,
        original=original,
    )


def _names(directory: ImageDirectory, mask: np.ndarray) -> Sequence[str]:
    return [repr(directory.categories[index]) for index in np.flatnonzero(mask)]
