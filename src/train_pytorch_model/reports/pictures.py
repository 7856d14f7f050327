"""Pictures inside a page."""

import base64
import io
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model.image_classifier.colours import DEFAULT_COLOURS, Colours
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode
from train_pytorch_model.machine.library_lines import library_lines

THUMBNAIL_SIDE = 160  # px
THUMBNAIL_QUALITY = 75
HEAT_SIDE = 32  # px; browsers smooth it
HEAT_LEVELS = 16
HEAT_COLOUR = (255, 0, 170)  # which photographs hardly have
MAX_HEAT = 0.75  # opacity: the picture can still be recognized


def thumbnail(path: Path, colours: Colours = DEFAULT_COLOURS, side: int = THUMBNAIL_SIDE) -> str:
    """Return the image of a file as by `small_picture`; empty if it cannot be read."""
    try:
        with library_lines:
            image = decode(path, side, colours)
        return small_picture(image, side)
    except UnreadableImageError:  # deleted since it was evaluated
        return ""


def small_picture(image: Image.Image, side: int = THUMBNAIL_SIDE) -> str:
    """Return the image at no more than so many px a side, as a data URI."""
    small = image.copy()
    small.thumbnail((side, side))
    small.info.clear()  # or the comments of the file would be copied
    return encode(small, "WEBP", quality=THUMBNAIL_QUALITY)  # a third smaller than as a JPEG


def heat_picture(heat: np.ndarray) -> str:
    """Return a heat map (h, w), float32, from 0 to 1, as a data URI of some hundred bytes.

    It is clear where there is no heat, and pink where there is most.
    """
    image = Image.fromarray(heat)
    image.thumbnail((HEAT_SIDE, HEAT_SIDE), Image.Resampling.BOX)
    small = np.asarray(image)
    strengths = np.cbrt(small / small.max())  # without the root, only the hottest spot is seen
    levels = np.rint(strengths * (HEAT_LEVELS - 1)).astype(np.uint8)
    picture = Image.fromarray(levels).convert("P")
    picture.putpalette(HEAT_COLOUR * HEAT_LEVELS)
    opacities = np.rint(255 * MAX_HEAT * np.linspace(0, 1, HEAT_LEVELS)).astype(np.uint8)
    return encode(picture, transparency=bytes(opacities), bits=4)


def encode(image: Image.Image, kind: str = "PNG", **options: object) -> str:
    """Encode an image as a data URI; the options are Pillow's."""
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    content = base64.b64encode(buffer.getvalue()).decode()
    return f"data:image/{kind.lower()};base64,{content}"
