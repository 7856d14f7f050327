"""From the bytes of an image file to an upright RGB image of bounded size, or why there is none."""

import io
import logging
import math
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from .orientation import UPRIGHT, find_png_exif, orientation_of
from .unidentified import File, describe_file, head_of, is_heif

FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "GIF")
MAX_PIXELS = 90_000_000
MAX_JPEG_PIXELS = 180_000_000  # a JPEG, or a phone's MPO, can be decoded at an eighth of its size
MAX_WHITE = 65_535  # of 16 bits
BOUND = 1.5  # decoded short side relative to a framing's `short_side`: leaves room for random crops

# Pillow warns above its limit and refuses twice as much. Ours depends on the format, read from the
# header.
Image.MAX_IMAGE_PIXELS = MAX_JPEG_PIXELS
warnings.filterwarnings(
    "ignore", module=r"PIL\b"
)  # of large images, which `open_image` refuses, and damage
# Of a colour profile or a text; Pillow's 1 MiB refuses real photographs.
PngImagePlugin.MAX_TEXT_CHUNK = 16 << 20
logging.getLogger(
    "PIL"
).propagate = False  # what it logs about damaged files is not for the terminal
HEAD_BYTES = (
    1 << 16
)  # of a file; a TIFF's description may be behind its pixels, and is unknown then

Pixels = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]  # (height, width, 3), RGB

_DEEP_COLOURS = re.compile(r"RGB[AX]?;16")  # Pillow's names of raw pixels


class Colours(NamedTuple):
    """What becomes of pixels that an RGB image of 8 bits cannot hold."""

    white_level: int = (
        MAX_WHITE  # the value of a 16-bit image that becomes white; larger ones do, too
    )
    background: tuple[int, int, int] = (255, 255, 255)  # what is seen through transparent pixels


AS_USUAL = Colours()


class UnreadableImageError(Exception):
    """The file is not an image that can be decoded; the text is the reason, without the file's
    name."""


def read_size(file: File) -> tuple[int, int]:
    """(height, width) of the upright image, from its header alone.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        width, height = image.size
        if isinstance(image, PngImagePlugin.PngImageFile) and "exif" not in image.info and image.fp:
            image.info["exif"] = find_png_exif(image.fp)  # for which Pillow would decode all pixels
        is_turned = (
            orientation_of(image) >= 5 and image.format != "TIFF"
        )  # Pillow turns a TIFF itself
        return (width, height) if is_turned else (height, width)


def decode(file: File, short_side: int | None = None, colours: Colours = AS_USUAL) -> Image.Image:
    """The upright RGB image, or the first frame of an animation.

    With `short_side`, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if its short side then still
    is `BOUND * short_side`, which costs a fraction of the time and memory. Raises
    `UnreadableImageError`.
    """
    with open_image(file) as image:
        if short_side is not None:
            image.draft(None, limit_size(image.size, short_side))
        return upright_rgb(image, colours)


def has_16_bits(file: File) -> bool:
    """Whether an image has 16 bits a channel, by its header alone.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        return _has_16_bits(image) or _has_deep_colours(image)


def highest_value(file: File) -> int:
    """The highest value of an image with 16 bits a channel. Raises `UnreadableImageError`."""
    with open_image(file) as image:
        if _has_deep_colours(image):
            return int(np.asarray(image.convert("RGB")).max()) * 256 + 255
        return int(np.asarray(image).max())


def small_jpeg(image: Image.Image, side: int, quality: int = 90) -> bytes:
    """The image as a JPEG of at most `side` pixels per side, without the comments of its file."""
    small = image.copy()
    small.thumbnail((side, side))
    small.info.clear()
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@contextmanager
def open_image(file: File) -> Iterator[Image.Image]:
    """An image with its header read, for a `with`; any error inside becomes an
    `UnreadableImageError`.
    """
    try:
        with _open(file) as image:
            limit = MAX_JPEG_PIXELS if image.format in ("JPEG", "MPO") else MAX_PIXELS
            if image.width * image.height > limit:
                raise UnreadableImageError(
                    f"{image.width} x {image.height} pixels are more than {limit:,}"
                )
            yield image
    except UnreadableImageError:
        raise
    except Exception as error:  # Pillow's plugins raise far more than OSError
        raise UnreadableImageError(_reason(error, file)) from error


def _open(file: File) -> Image.Image:
    """Open an image of one of `FORMATS`, or in HEIF, whose decoder takes as long to import as all
    others.
    """
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        if not is_heif(head_of(file, 12)):
            raise
    import pillow_heif

    pillow_heif.options.DECODE_THREADS = 1  # the other cores decode other images
    pillow_heif.register_heif_opener()
    if not isinstance(file, str | os.PathLike):
        file.seek(0)
    return Image.open(file, formats=("HEIF",))


def limit_size(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """`size`, scaled down if its shorter side exceeds `BOUND * short_side`."""
    short, bound = min(size), math.ceil(BOUND * short_side)
    if short <= bound:
        return size
    width, height = size
    return max(bound, round(width * bound / short)), max(bound, round(height * bound / short))


def upright_rgb(image: Image.Image, colours: Colours) -> Image.Image:
    """An image of Pillow's, upright and in RGB. Raises `UnreadableImageError` for 32-bit pixels."""
    is_dark = colours.white_level < MAX_WHITE and _has_deep_colours(image)
    image.load()
    upright = _rgb(image, colours)
    if is_dark:
        scale = MAX_WHITE / colours.white_level
        upright = upright.point([min(255, round(value * scale)) for value in range(256)] * 3)
    orientation = orientation_of(image)
    return upright.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else upright


def _has_16_bits(image: Image.Image) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether an image, not loaded yet, has 16 bits a colour, of which Pillow keeps the higher
    eight.
    """
    return bool(_DEEP_COLOURS.search(str(getattr(image, "tile", [])[:1])))


def _rgb(image: Image.Image, colours: Colours) -> Image.Image:
    if _has_16_bits(image):  # `convert` alone would clip everything above 255 to white
        return (
            image.convert("I")
            .point(lambda value: value * (255 / colours.white_level))
            .convert("RGB")
        )
    if image.mode in ("I", "F"):
        raise UnreadableImageError(f"its 32 bit pixels (mode {image.mode}) have no known range")
    if image.has_transparency_data:  # the colours of transparent pixels are arbitrary
        background = Image.new("RGBA", image.size, (*colours.background, 255))
        image = Image.alpha_composite(background, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception, file: File) -> str:
    match error:
        case FileNotFoundError():
            return "the file is gone"
        case PermissionError():
            return "no permission to read the file"
        case UnidentifiedImageError():
            return describe_file(head_of(file, HEAD_BYTES))
        case OSError(errno=int()):
            return f"the file cannot be read: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
