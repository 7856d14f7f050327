"""From an image file to pixels of bounded size, decoded and resized by what measured fastest.

Pillow decodes: `torchvision.io` takes four fifths of its time for a JPEG, but it is deprecated.
PyTorch resizes bytes in a quarter of Pillow's time.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from .decoding import bounded, drafted
from .preprocessing import Framing

Pixels = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]
"""(height, width, 3), RGB."""

Decode = Callable[[Path, int], Pixels]
"""An image file and the short side that is needed → its pixels upright, as small as the decoder gives them.

Raises `UnreadableImageError`.
"""


def decoded(file: str | os.PathLike[str] | BinaryIO, short_side: int) -> Pixels:
    """The plain `Decode`, here and now."""
    return np.array(drafted(file, short_side))


def read_pixels(file: str | os.PathLike[str] | BinaryIO, short_side: int) -> Pixels:
    """The upright image, its short side reduced to `BOUND * short_side` where it is above that.

    Raises `UnreadableImageError`.
    """
    return reduced(decoded(file, short_side), short_side)


def reduced(pixels: Pixels, short_side: int) -> Pixels:
    """The pixels, their short side reduced to `BOUND * short_side` where it is above that."""
    height, width, _ = pixels.shape
    to_width, to_height = bounded((width, height), short_side)
    return pixels if (to_width, to_height) == (width, height) else resize(pixels, to_height, to_width)


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """The pixels, in C order and writable, at another size: bilinear, with antialiasing."""
    images = torch.from_numpy(pixels).unsqueeze(0).permute(0, 3, 1, 2)  # (1, 3, H, W), channels last
    resized = F.interpolate(images, (height, width), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def view(pixels: Pixels, framing: Framing) -> Pixels:
    """What a model sees of an image where it predicts."""
    return framing.apply(Image.fromarray(pixels))


def framed(pixels: Pixels, framing: Framing) -> Pixels:
    """What training sees of an image: the `view` in a fifth of its time, by a window of whole pixels."""
    seen = pixels[window(*pixels.shape[:2], framing)]
    if seen.shape[:2] == (framing.height, framing.width):
        return np.ascontiguousarray(seen)
    # A copy in one piece: PyTorch would make it by threads of its own.
    return resize(np.array(seen, order="C"), framing.height, framing.width)


def framed_at_most(pixels: Pixels, framing: Framing) -> Pixels:
    """`framed`, or what it would see, unresized, if that has fewer pixels: at any size it shows as much."""
    seen = pixels[window(*pixels.shape[:2], framing)]
    is_smaller = seen.shape[0] * seen.shape[1] < framing.num_pixels
    return np.ascontiguousarray(seen) if is_smaller else framed(pixels, framing)


def window(height: int, width: int, framing: Framing) -> tuple[slice, slice]:
    """Rows and columns of what training sees of an image of that size; one at least."""
    if (height, width) == (framing.height, framing.width):
        return slice(0, height), slice(0, width)
    left, top, right, bottom = map(round, framing.box(width, height))
    return slice(top, max(top + 1, bottom)), slice(left, max(left + 1, right))
