"""The part of an image that a network sees, at the size at which it sees it."""

import numpy as np

from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.image_classifier.pixels import resize
from train_pytorch_model.image_classifier.spec import Framing


def frame(pixels: Pixels, framing: Framing) -> Pixels:
    """Return the framed image, as training sees it.

    It is the `view` in a fifth of its time, cropped to whole pixels.
    """
    size = (framing.height, framing.width)
    if framing.mode != "crop" and pixels.shape[:2] != size:
        inner_height, inner_width = framing.inner_size(*pixels.shape[:2])
        return framing.pad(resize(pixels, inner_height, inner_width))
    seen = pixels[window(*pixels.shape[:2], framing)]
    if seen.shape[:2] == size:
        return np.ascontiguousarray(seen)
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(seen, order="C"), framing.height, framing.width)


def frame_at_most(pixels: Pixels, framing: Framing) -> Pixels:
    """Return `frame`, or its window without resizing if that has fewer pixels but shows as much."""
    if framing.mode == "crop":
        seen = pixels[window(*pixels.shape[:2], framing)]
        rows, columns, _ = seen.shape
        if rows * columns < framing.num_pixels:
            return np.ascontiguousarray(seen)
    return frame(pixels, framing)


def window(height: int, width: int, framing: Framing) -> tuple[slice, slice]:
    """Return the rows and columns, at least one each, that training sees of an image."""
    if (height, width) == (framing.height, framing.width):
        return slice(0, height), slice(0, width)
    left, top, right, bottom = map(round, framing.box(width, height))
    return slice(top, max(top + 1, bottom)), slice(left, max(left + 1, right))
