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

from .colours import DEFAULT_COLOURS, Colours
from .decoding import Pixels, decode, limit_size
from .spec import Framing
from .unidentified import File

# Takes an image file, the short side that is needed, and what becomes of colours. Returns upright
# pixels, reduced as far as the decoder can; raises `UnreadableImageError`.
Decode = Callable[[Path, int, Colours], Pixels]


def decode_pixels(file: File, short_side: int, colours: Colours = DEFAULT_COLOURS) -> Pixels:
    """Decode in the calling thread; the plain `Decode`."""
    return np.array(decode(file, short_side, colours))


def read_pixels(file: File, short_side: int, colours: Colours = DEFAULT_COLOURS) -> Pixels:
    """Return the upright image, `reduce`d for the short side. Raises `UnreadableImageError`."""
    return reduce(decode_pixels(file, short_side, colours), short_side)


def reduce(pixels: Pixels, short_side: int) -> Pixels:
    """Return the pixels with a short side of at most `BOUND * short_side`.

    Blocks of a power of 2 pixels a side are averaged first, as by a JPEG's decoder: an image in
    another format, or one that came as pixels, then predicts the same.
    """
    height, width, _ = pixels.shape
    to_width, to_height = limit_size((width, height), short_side)
    factor = min(width // to_width, height // to_height)
    if factor > 1:
        block = 1 << (factor.bit_length() - 1)
        pixels = np.array(Image.fromarray(pixels).reduce(block))
        height, width, _ = pixels.shape
        to_width, to_height = limit_size((width, height), short_side)
    if (to_width, to_height) == (width, height):
        return pixels
    return resize(pixels, to_height, to_width)


def resize(pixels: Pixels, height: int, width: int) -> Pixels:
    """Return the pixels, in C order and writable, at another size: bilinear, with antialiasing."""
    images = torch.from_numpy(pixels).unsqueeze(0)
    images = images.permute(0, 3, 1, 2)  # (1, 3, H, W), channels last
    resized = F.interpolate(images, (height, width), mode="bilinear", antialias=True)
    return resized[0].permute(1, 2, 0).numpy()


def view(pixels: Pixels, framing: Framing) -> Pixels:
    """Return the framed image, as a model sees it at inference."""
    return framing.apply(Image.fromarray(pixels))
