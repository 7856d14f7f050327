"""Pictures inside a page."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.image_classifier.decoding import (
    DEFAULT_COLOURS,
    Colours,
    UnreadableImageError,
    decode,
)

THUMBNAIL_SIDE = 160  # px
THUMBNAIL_QUALITY = 75
HEAT_SIDE = 32  # px; browsers smooth it
HEAT_LEVELS = 16
HEAT_COLOUR = (255, 0, 170)  # which photographs hardly have
MAX_HEAT = 0.75  # opacity: the picture can still be recognized


def thumbnail(path: Path, colours: Colours = DEFAULT_COLOURS) -> str:
    """The image of a file as by `small_picture`; empty if it cannot be read."""
    try:
        return small_picture(decode(path, THUMBNAIL_SIDE, colours))
    except UnreadableImageError:  # deleted since it was evaluated
        return ""


def small_picture(image: Image.Image) -> str:
    """The image at no more than `THUMBNAIL_SIDE` px a side, as a data URI."""
    small = image.copy()
    small.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    small.info.clear()  # or the comments of the file would be copied
    return encode(small, "WEBP", quality=THUMBNAIL_QUALITY)  # a third smaller than as a JPEG


def heat_picture(heat: np.ndarray) -> str:
    """A heat map (h, w), float32, from 0 to 1, as a data URI of some hundred bytes: clear to pink."""
    image = Image.fromarray(heat)
    image.thumbnail((HEAT_SIDE, HEAT_SIDE), Image.Resampling.BOX)
    shares = np.cbrt(
        np.asarray(image) / np.asarray(image).max()
    )  # or only the hottest spot is seen
    levels = Image.fromarray(np.rint(shares * (HEAT_LEVELS - 1)).astype(np.uint8)).convert("P")
    steps = np.linspace(0, 1, HEAT_LEVELS)
    levels.putpalette(HEAT_COLOUR * HEAT_LEVELS)
    return encode(
        levels, transparency=bytes(np.rint(255 * MAX_HEAT * steps).astype(np.uint8)), bits=4
    )


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> str:
    """Encode an image as a data URI; the options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
