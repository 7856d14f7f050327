"""The part of an image that a network sees, at the size at which it sees it."""

import numpy as np

from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.image_classifier.pixels import resize
from train_pytorch_model.image_classifier.spec import Framing


def frame(pixels: Pixels, framing: Framing) -> Pixels:
    """The framed image, as training sees it: the `view` in a fifth of its time, cropped to whole
    pixels.
    """
    if framing.mode != "crop" and pixels.shape[:2] != (framing.height, framing.width):
        return framing.pad(resize(pixels, *framing.inner_size(*pixels.shape[:2])))
    seen = pixels[window(*pixels.shape[:2], framing)]
    if seen.shape[:2] == (framing.height, framing.width):
        return np.ascontiguousarray(seen)
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(seen, order="C"), framing.height, framing.width)


def frame_at_most(pixels: Pixels, framing: Framing) -> Pixels:
    """`frame`, or its window without resizing if that has fewer pixels: it shows as much."""
    if framing.mode == "crop":
        seen = pixels[window(*pixels.shape[:2], framing)]
        if seen.shape[0] * seen.shape[1] < framing.num_pixels:
            return np.ascontiguousarray(seen)
    return frame(pixels, framing)


def window(height: int, width: int, framing: Framing) -> tuple[slice, slice]:
    """Rows and columns that training sees of an image of that size; at least one of each."""
    if (height, width) == (framing.height, framing.width):
        return slice(0, height), slice(0, width)
    left, top, right, bottom = map(round, framing.box(width, height))
    return slice(top, max(top + 1, bottom)), slice(left, max(left + 1, right))
