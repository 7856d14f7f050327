"""Images that cannot be read: how many are tolerated, and where they are listed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import table_of, write_csv
from train_pytorch_model.machine.console import logger

UNREADABLE_IMAGES = "bad_images.csv"
NONE_READABLE = "none of its images can be read"
# Both together make a category, or the whole dataset, too damaged to train on.
MAX_UNREADABLE_FRACTION = 0.05
MIN_UNREADABLE_IMAGES = 10


@dataclass(frozen=True)
class UnreadableImage:
    """An image that cannot be read, and why: a row of `bad_images.csv`."""

    port: str
    file_name: str
    category: str
    reason: str
    original: str = ""  # the file's name before it was converted or split; empty if unknown

    def __str__(self) -> str:
        """The image as messages show it, without the port."""
        original = f", originally {self.original!r}" if self.original else ""
        return f"{self.file_name!r}{original}: {self.reason}"


def without_unreadable_images(
    images: ImageDirectory, unreadable: Mapping[int, str], is_limited: bool = True
) -> tuple[ImageDirectory, list[UnreadableImage]]:
    """Return the readable images, and a record of each unreadable one.

    `unreadable` has the reason for each of them, by index. Raises `InvalidDatasetError` if no image
    is readable and, if `is_limited`, for too many that are not.
    """
    indices = np.array(sorted(unreadable), np.int64)
    records = _records_of(images, unreadable, indices)
    readable = images.without(indices)

    problem = ""
    if len(unreadable) == len(images):
        problem = f"{NONE_READABLE}."
    elif is_limited:
        problem = _problem_of_categories(images, readable) or _problem_of_dataset(images, readable)
    if problem:
        listed = bulleted([str(record) for record in records])
        hint = f"Unreadable images:{listed}\nReplace or remove them."
        raise InvalidDatasetError(images.title, problem, hint)
    return readable, records


def _records_of(
    images: ImageDirectory, unreadable: Mapping[int, str], indices: np.ndarray
) -> list[UnreadableImage]:
    return [
        UnreadableImage(
            port=images.port,
            file_name=images.file_names[index],
            category=images.category_of(index),
            reason=unreadable[index],
            original=original,
        )
        for index, original in zip(indices.tolist(), images.original_names(indices), strict=True)
    ]


def _problem_of_dataset(images: ImageDirectory, readable: ImageDirectory) -> str:
    """Return what is wrong if too many images of the dataset are unreadable, else nothing."""
    count = len(images) - len(readable)
    if count >= MIN_UNREADABLE_IMAGES and count > MAX_UNREADABLE_FRACTION * len(images):
        return f"{count} of {len(images)} images cannot be read."
    return ""


def _problem_of_categories(images: ImageDirectory, readable: ImageDirectory) -> str:
    """Return what is wrong if a category has too few readable images, else nothing."""
    if not images.categories:
        return ""
    counts = images.class_counts()
    unreadable = counts - readable.class_counts()

    def names(mask: np.ndarray) -> str:
        return ", ".join(repr(images.categories[index]) for index in np.flatnonzero(mask))

    empty = (counts > 0) & (unreadable == counts)
    if empty.any():
        return f"no image can be read of category {names(empty)}."
    is_over = unreadable > MAX_UNREADABLE_FRACTION * counts
    damaged = (unreadable >= MIN_UNREADABLE_IMAGES) & is_over
    if damaged.any():
        percent = f"{MAX_UNREADABLE_FRACTION:.0%}"
        return f"more than {percent} of the images of category {names(damaged)} cannot be read."
    return ""


def unreadable_images_warning(images: Sequence[UnreadableImage]) -> str:
    """Return the text of a warning that lists images that are left out."""
    lines = [f"{image.port}: {image}" for image in images]
    subject = counted(len(lines), "unreadable image is", "unreadable images are")
    return f"{subject} left out:{bulleted(lines)}"


def list_unreadable_images(root: Path, images: Sequence[UnreadableImage]) -> None:
    """Warn of the images that are left out, if any, and list them in the directory `root`."""
    if images:
        logger.warning(unreadable_images_warning(images))
        write_csv(root / UNREADABLE_IMAGES, table_of(UnreadableImage, images))
