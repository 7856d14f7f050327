"""Categories of which no image can be read: they are none, as folders without an image are."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import UNLABELLED
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.inputs.unreadable_images import NONE_READABLE
from train_pytorch_model.machine.cores import in_threads

SMALL_SIDE = 8  # px, to which a JPEG is decoded: that reads all of it, in a fraction of the time


def without_damaged_categories(images: ImageDirectory) -> ImageDirectory:
    """Return the images without the categories of which none can be read, if others have one.

    A note tells which these are and what is wrong with an image of each. Of the other categories,
    only the first image that can be read is decoded. Raises `InvalidDatasetError` if none can be
    read.
    """
    if not images.categories or images.is_multi_label:  # whose images have others, too
        return images
    of_categories = list(_indices_by_category(images))
    reasons = in_threads(lambda indices: _damage_of(images, indices), of_categories)
    damaged = {
        int(images.class_indices[indices[0]]): reason
        for indices, reason in zip(of_categories, reasons, strict=True)
        if reason
    }
    if not damaged:
        return images
    described = list(_describe(images, damaged))
    if len(damaged) == len(of_categories):
        reason = f"{NONE_READABLE}:{bulleted(described)}"
        hint = "\nReplace them, or name another folder."
        raise InvalidDatasetError(images.title, reason, hint)
    without = images.without(np.flatnonzero(np.isin(images.class_indices, list(damaged))))
    return _leave_out(without, described)


def without_empty_categories(images: ImageDirectory) -> ImageDirectory:
    """Return the images, whose unreadable ones are left out, without the categories of only those.

    A note tells which these are.
    """
    empty = np.flatnonzero(images.class_counts() == 0).tolist() if images.categories else []
    if not empty:
        return images
    return _leave_out(images, [repr(images.categories[index]) for index in empty])


def _indices_by_category(images: ImageDirectory) -> Iterator[np.ndarray]:
    """Yield the indices of the images of each category that has some."""
    order = np.argsort(images.class_indices, kind="stable")
    ends = np.cumsum(images.class_counts())
    for indices in np.split(order, ends[:-1]):
        if len(indices):
            yield indices


def _damage_of(images: ImageDirectory, indices: np.ndarray) -> str:
    """Return what is wrong with the first image; empty if one of them can be read."""
    first = ""
    for index in map(int, indices):
        try:
            decode(images.path(index), SMALL_SIDE)
            return ""
        except UnreadableImageError as error:
            first = first or f"{images.file_names[index]!r}: {error}"
    return first


def _describe(images: ImageDirectory, damaged: Mapping[int, str]) -> Iterator[str]:
    counts = images.class_counts().tolist()
    for category, reason in damaged.items():
        number = counted(counts[category], "image", "images")
        yield f"{images.categories[category]!r}: {number}, such as {reason}"


def _leave_out(images: ImageDirectory, described: Sequence[str]) -> ImageDirectory:
    """Return the same images with those categories only that have one, and a note of the others."""
    note = f"categories without an image that can be read are left out:{bulleted(described)}"
    present = np.flatnonzero(images.class_counts())
    categories = tuple(images.categories[index] for index in present.tolist())
    new_indices = np.full(len(images.categories), UNLABELLED, dtype=np.int32)
    new_indices[present] = np.arange(len(present), dtype=np.int32)
    noted = replace(images, notes=(*images.notes, note))
    return noted.renumbered(categories, new_indices)
