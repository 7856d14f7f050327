"""Read image headers before anything expensive starts: image sizes, and files that are not images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.writing import table_of, write_csv
from train_pytorch_model.machine.console import logger

BAD_IMAGES = "bad_images.csv"
MAX_BAD_SHARE = 0.05  # of a category or of the whole dataset …
MIN_BAD_IMAGES = (
    10  # … and at least this many unreadable images make a dataset too damaged to train on
)


@dataclass(frozen=True)
class BadImage:
    """An image that was left out, and why."""

    port: str
    file_name: str
    category: str
    reason: str
    original: str = ""  # the file's name before it was converted or split; empty if unknown

    def __str__(self) -> str:
        """The image as messages show it, without the port."""
        original = f", originally {self.original!r}" if self.original else ""
        return f"{self.file_name!r}{original}: {self.reason}"


def without_bad_images(
    given: ImageDirectory, bad: dict[int, str], is_limited: bool = True
) -> tuple[ImageDirectory, list[BadImage]]:
    """The readable images, and a record of each other one.

    Raises `InvalidDatasetError` if no image is readable and, if `is_limited`, for too many that are
    not.
    """
    indices, categories = np.array(sorted(bad), np.int64), given.categories
    records = [
        BadImage(
            port=given.port,
            file_name=given.file_names[index],
            category=categories[given.class_indices[index]] if categories else "",
            reason=bad[index],
            original=original,
        )
        for index, original in zip(indices.tolist(), given.original_names(indices), strict=True)
    ]
    kept, problem = given.without(indices), ""
    if len(bad) == len(given):
        problem = "none of its images can be read."
    elif is_limited and len(bad) >= MIN_BAD_IMAGES and len(bad) > MAX_BAD_SHARE * len(given):
        problem = f"{len(bad)} of {len(given)} images cannot be read."
    if is_limited and categories and 0 < len(bad) < len(given):
        before = given.class_counts()
        lost = before - kept.class_counts()

        def names(mask: np.ndarray) -> str:
            return ", ".join(repr(categories[index]) for index in np.flatnonzero(mask))

        if emptied := names((before > 0) & (lost == before)):
            problem = f"no image can be read of category {emptied}."
        elif damaged := names((lost >= MIN_BAD_IMAGES) & (lost > MAX_BAD_SHARE * before)):
            problem = (
                f"more than {MAX_BAD_SHARE:.0%} of the images of category {damaged} cannot be read."
            )
    if problem:
        hint = f"Unreadable images:{bulleted([str(record) for record in records])}\nReplace or remove them."
        raise InvalidDatasetError(given.title, problem, hint)
    return kept, records


def left_out(bad_images: Sequence[BadImage]) -> str:
    """The text of a warning that lists the images that were left out."""
    lines = [f"{image.port}: {image}" for image in bad_images]
    subject = counted(len(lines), "unreadable image is", "unreadable images are")
    return f"{subject} left out:{bulleted(lines)}"


def list_left_out(root: Path, bad_images: Sequence[BadImage]) -> None:
    """Warn of the images that were left out, if any, and list them in the output directory `root`."""
    if bad_images:
        logger.warning(left_out(bad_images))
        write_csv(root / BAD_IMAGES, table_of(BadImage, bad_images))
