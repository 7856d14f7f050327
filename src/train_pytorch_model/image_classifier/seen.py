"""What a model saw in images besides their categories, by which `watch` compares new images.

A column each in the table `seen.parquet` of scores, and in what a served model answers with its
parameter `watch`: the energy of the logits, see `predictions`; the brightness of the framed image,
0 to 1; width by height of the file's image; and its number of pixels.
"""

import numpy as np
from torch import Tensor

from .decoding import UnreadableImageError, read_size
from .unidentified import File

EVERY = 8  # pixels a side, of which one counts for the brightness: a mean hardly needs more


def brightness_of(images: Tensor) -> np.ndarray:
    """Return the mean of each framed image (B, H, W, 3), uint8: (B,), float64, 0 to 1."""
    sample = images[:, ::EVERY, ::EVERY].cpu().double()
    brightness: np.ndarray = sample.mean(dim=(1, 2, 3)).div(255).numpy()
    return brightness


def shape_of(file: File) -> tuple[float, float]:
    """Return the aspect ratio of an image and its pixels, by its header; NaN for no image."""
    try:
        height, width = read_size(file)
    except UnreadableImageError:
        return np.nan, np.nan
    return width / height, float(width * height)
