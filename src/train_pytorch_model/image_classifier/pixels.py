"""From an image file to pixels of bounded size, decoded by Pillow and resized by PyTorch.

`torchvision.io` decodes a JPEG in four fifths of Pillow's time, but is deprecated.
PyTorch resizes uint8 images in a quarter of Pillow's time.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from .decoding import AS_USUAL, Colours, Pixels, decode, limit_size
from .spec import Framing
from .unidentified import File

Decode = Callable[[Path, int, Colours], Pixels]
"""An image file, the short side that is needed, what becomes of colours → its upright pixels,
reduced as far as the decoder can. Raises `UnreadableImageError`."""


def decode_pixels(file: File, short_side: int, colours: Colours = AS_USUAL) -> Pixels:
    """The plain `Decode`, in the calling thread."""
    return np.array(decode(file, short_side, colours))


def read_pixels(file: File, short_side: int, colours: Colours = AS_USUAL) -> Pixels:
    """The upright image, `reduce`d for the short side. Raises `UnreadableImageError`."""
    return reduce(decode_pixels(file, short_side, colours), short_side)


def reduce(pixels: Pixels, short_side: int) -> Pixels:
    """The pixels, their short side reduced to `BOUND * short_side` where it is above that.

    Blocks of a power of 2 pixels a side are averaged first, as by a JPEG's decoder: an image in
    another format, or one that came as pixels, then predicts the same.
    """
    to_width, to_height = limit_size(pixels.shape[1::-1], short_side)
    factor = min(pixels.shape[1] // to_width, pixels.shape[0] // to_height)
    if factor > 1:
        pixels = np.array(Image.fromarray(pixels).reduce(1 << (factor.bit_length() - 1)))
    height, width, _ = pixels.shape
    to_width, to_height = limit_size((width, height), short_side)
    return (
        pixels if (to_width, to_height) == (width, height) else resize(pixels, to_height, to_width)
    )


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """The pixels, in C order and writable, at another size: bilinear, with antialiasing."""
    images = (
        torch.from_numpy(pixels).unsqueeze(0).permute(0, 3, 1, 2)
    )  # (1, 3, H, W), channels last
    resized = F.interpolate(images, (height, width), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def view(pixels: Pixels, framing: Framing) -> Pixels:
    """The framed image, as a model sees it at inference."""
    return framing.apply(Image.fromarray(pixels))
