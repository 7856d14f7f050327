"""The headers of images: their sizes, and which of them cannot be read."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, read_size
from train_pytorch_model.machine.cores import in_threads

MAX_HEADERS = 20_000  # a header costs 0.05 ms; beyond, an evenly spaced sample of this many is read
COMMON_FRACTION = 0.99  # of the images must have a size for it to be the common size


@dataclass(frozen=True)
class Headers:
    """The sizes and unreadable images found in the headers of a directory."""

    # (height, width) of nearly all images, upright; None if they differ.
    common_size: tuple[int, int] | None
    sizes: Mapping[tuple[int, int], int]  # (height, width) → how many of the images have it
    unreadable: dict[int, str]  # index of an image that cannot be read → the reason


def read_headers(directory: ImageDirectory) -> Headers:
    """Read the headers of all images, or of a fixed sample of a large directory."""

    def size_or_reason(index: int) -> tuple[int, int] | str:
        try:
            return read_size(directory.path(index))
        except UnreadableImageError as error:
            return str(error)

    indices = evenly_spaced(len(directory), MAX_HEADERS).tolist()
    sizes: Counter[tuple[int, int]] = Counter()
    unreadable: dict[int, str] = {}
    for index, result in zip(indices, in_threads(size_or_reason, indices), strict=True):
        if isinstance(result, str):
            unreadable[index] = result
        else:
            sizes[result] += 1
    return Headers(_common_size(sizes), sizes, unreadable)


def _common_size(sizes: Counter[tuple[int, int]]) -> tuple[int, int] | None:
    """Return the size of nearly all images; None if they differ."""
    for size, count in sizes.most_common(1):
        if count >= COMMON_FRACTION * sizes.total():
            return size
    return None
