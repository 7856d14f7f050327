"""From the bytes of an image file to an upright RGB image of bounded size, or why there is none."""

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import numpy as np
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from .colours import (
    DEFAULT_COLOURS,
    Colours,
    has_deep_colours,
    has_deep_greys,
    highest_value_of,
    to_rgb,
)
from .orientation import UPRIGHT, find_png_exif, orientation_of
from .pillow_settings import MAX_IMAGE_PIXELS, pillow_for_decoding
from .unidentified import File, describe_file, head_of, is_heif

FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "GIF")
MAX_PIXELS = 90_000_000
# A JPEG, or a phone's MPO, can be decoded at an eighth of its size.
MAX_JPEG_PIXELS = MAX_IMAGE_PIXELS
# Decoded short side relative to a framing's `short_side`: leaves room for random crops.
BOUND = 1.5

# Read of a file to describe it; a TIFF's description may be behind its pixels, and is unknown then.
HEAD_BYTES = 1 << 16

Pixels = np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]  # (height, width, 3), RGB


class UnreadableImageError(Exception):
    """The file is not an image that can be decoded; the text is the reason, without the file's
    name."""


def read_size(file: File) -> tuple[int, int]:
    """Return the upright image's (height, width), from its header alone.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        width, height = image.size
        if isinstance(image, PngImagePlugin.PngImageFile) and image.fp:
            _read_late_exif(image, image.fp)
        # Pillow turns a TIFF itself.
        is_turned = orientation_of(image) >= 5 and image.format != "TIFF"
        return (width, height) if is_turned else (height, width)


def decode(
    file: File, short_side: int | None = None, colours: Colours = DEFAULT_COLOURS
) -> Image.Image:
    """Return the upright RGB image, or the first frame of an animation.

    With `short_side`, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if its short side then still
    is `BOUND * short_side`, which costs a fraction of the time and memory. Raises
    `UnreadableImageError`.
    """
    with open_image(file) as image:
        if short_side is not None:
            image.draft(None, limit_size(image.size, short_side))
        return upright_rgb(image, colours)


def has_16_bits(file: File) -> bool:
    """Return whether an image has 16 bits a channel, by its header alone.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        return has_deep_greys(image) or has_deep_colours(image)


def highest_value(file: File) -> int:
    """Return the highest value that is not transparent of an image with 16 bits a channel.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        return highest_value_of(image)


def small_jpeg(image: Image.Image, side: int, quality: int = 90) -> bytes:
    """Return the image as a JPEG of at most `side` pixels per side, without its file's comments."""
    small = image.copy()
    small.thumbnail((side, side))
    small.info.clear()
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@contextmanager
def open_image(file: File) -> Iterator[Image.Image]:
    """Open an image and read its header, for a `with`.

    Any error inside becomes an `UnreadableImageError`.
    """
    with pillow_for_decoding:
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


def _read_late_exif(image: Image.Image, file: IO[bytes]) -> None:
    """Add what a PNG tells about its orientation after the pixels, which are decoded if need be."""
    start = file.tell()
    exif = find_png_exif(file)
    file.seek(start)
    if exif is None:
        image.load()
    elif exif:
        image.info["exif"] = exif


def _open(file: File) -> Image.Image:
    """Open an image of one of `FORMATS`, or in HEIF.

    The decoder of HEIF takes as long to import as all others.
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
    """Return `size`, scaled down if its shorter side exceeds `BOUND * short_side`."""
    short = min(size)
    bound = math.ceil(BOUND * short_side)
    if short <= bound:
        return size
    width, height = size
    return max(bound, round(width * bound / short)), max(bound, round(height * bound / short))


def upright_rgb(image: Image.Image, colours: Colours) -> Image.Image:
    """Return an image of Pillow's upright and in RGB.

    Raises `UnreadableImageError` for 32-bit pixels.
    """
    if image.mode in ("I", "F") and not has_deep_greys(image):
        raise UnreadableImageError(f"its 32 bit pixels (mode {image.mode}) have no known range")
    with pillow_for_decoding:  # an image of a caller may not be loaded yet
        upright = to_rgb(image, colours)
    orientation = orientation_of(image)
    return upright.transpose(UPRIGHT[orientation]) if orientation in UPRIGHT else upright


def _reason(error: Exception, file: File) -> str:
    """Return why an image cannot be read, without its name."""
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
