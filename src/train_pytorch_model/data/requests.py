"""What is asked of whoever reads images, and the functions that answer it."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Frame = Callable[[np.ndarray], np.ndarray]  # the pixels of a whole image → those of them to cache

CachedDecode = Callable[[int, Callable[[], np.ndarray], Frame], np.ndarray]
"""An image's number, `decode` and `frame` → `frame(decode())`, (H, W, 3), uint8, possibly
read-only: from the cache, or decoded now. Raises what `decode` raises."""


def uncached(_: int, decode: Callable[[], np.ndarray], frame: Frame) -> np.ndarray:
    """Decode without a cache."""
    return frame(decode())


class ImageRequest(NamedTuple):
    """An image to read."""

    file: str
    number: int = 0  # its number in the decode cache
    seed: int = 0  # of its augmentation


Prepare = Callable[
    [ImageRequest, CachedDecode], np.ndarray
]  # → (H, W, 3), uint8, or `UnreadableImageError`
