"""Images from arrays of numbers: which axis has the channels, which value is white."""

import numpy as np
from PIL import Image

from train_pytorch_model.image_classifier.colours import Colours

CHANNELS = (1, 3, 4)  # grey, RGB, RGB with opacity
EXPECTED_SHAPES = (
    "expected (height, width), or 1, 3 or 4 channels behind or before these, and (images, …) for"
    " several"
)


class NotAnImageError(Exception):
    """A value is nothing that `predict` takes; the text completes "it is" or "it has"."""


def image_of(array: np.ndarray, colours: Colours) -> Image.Image:
    """Return the grey, RGB or RGBA image in an array. Raises `NotAnImageError`."""
    if array.size == 0:
        raise NotAnImageError(f"{described(array)}: it has no pixels")
    axis = _channel_axis(array)
    pixels = _in_8_bits(array, colours.white_level)
    if axis is not None:
        pixels = np.moveaxis(pixels, axis, 2)  # (H, W, C)
        pixels = pixels[..., 0] if pixels.shape[2] == 1 else pixels
    return Image.fromarray(np.ascontiguousarray(pixels))


def described(array: np.ndarray) -> str:
    """Return what an array is: "an array of shape (2, 3) of float64"."""
    return f"an array of shape {array.shape} of {array.dtype}"


def _channel_axis(array: np.ndarray) -> int | None:
    """Return which axis has the channels; None for (H, W). Raises `NotAnImageError`."""
    if array.ndim == 2:
        return None
    if array.ndim != 3:
        raise NotAnImageError(f"{described(array)}: {EXPECTED_SHAPES}")
    for axis in (2, 0):
        if array.shape[axis] in CHANNELS:
            return axis
    raise NotAnImageError(
        f"{described(array)}: {EXPECTED_SHAPES}, `array[..., None]` if they are grey"
    )


def _in_8_bits(pixels: np.ndarray, white_level: int) -> np.ndarray:
    """Return the pixels as uint8. Raises `NotAnImageError`."""
    scaled: np.ndarray
    if pixels.dtype == np.bool_:
        scaled = pixels * np.uint8(255)
    elif pixels.dtype == np.uint16:
        scaled = _of_16_bits(pixels, white_level)
    elif pixels.dtype.kind in "iu":
        scaled = _of_bounded(pixels, 255, "0 to 255, or uint16 for 16 bits")
    elif pixels.dtype.kind == "f":
        bounded = _of_bounded(pixels, 1, "0 to 1, before they are normalized, or uint8")
        scaled = (bounded.astype(np.float32) * 255).round()
    else:
        raise NotAnImageError(f"{described(pixels)}: expected numbers")
    return scaled.astype(np.uint8, copy=False)


def _of_16_bits(pixels: np.ndarray, white_level: int) -> np.ndarray:
    """Return pixels of 16 bits from 0 to 255, as a file of 16 bits is read."""
    scaled = pixels * np.float32(255 / white_level)
    if 0 < scaled.max() < 1:
        raise NotAnImageError(
            f"{described(pixels)}, whose highest value is {pixels.max()}, black in 16 bits: give"
            " values from 0 to 255 as uint8"
        )
    return scaled.clip(max=255)


def _of_bounded(pixels: np.ndarray, highest: int, expected: str) -> np.ndarray:
    """Return the pixels, all from 0 to `highest`. Raises `NotAnImageError`."""
    low, high = pixels.min(), pixels.max()
    if not (low >= 0 and high <= highest):  # not a number, too
        raise NotAnImageError(
            f"{described(pixels)} with values from {low:.4g} to {high:.4g}: expected {expected}"
        )
    return pixels
