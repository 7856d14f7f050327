"""From the bytes of an image file to an upright RGB image of bounded size."""

import io
import logging
import math
import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, NamedTuple

import numpy as np
from PIL import Image, PngImagePlugin, UnidentifiedImageError

from .unidentified import HEAD_BYTES, HEIF_HEAD_BYTES, describe, is_heif

FORMATS = ("JPEG", "PNG", "WEBP", "AVIF", "BMP", "TIFF", "PPM", "GIF")
MAX_PIXELS = 90_000_000
MAX_JPEG_PIXELS = 180_000_000  # a JPEG, or a phone's MPO, can be decoded at an eighth of its size
MAX_WHITE = 65_535  # of 16 bits
BOUND = 1.5  # decoded short side relative to a framing's `short_side`: leaves room for random crops

# Pillow warns above its limit and refuses twice as much. Ours depends on the format, read from the header.
Image.MAX_IMAGE_PIXELS = MAX_JPEG_PIXELS
warnings.filterwarnings("ignore", module=r"PIL\b")  # of large images, which `open_image` refuses, and damage
# Of a colour profile or a text; Pillow's 1 MiB refuses real photographs.
PngImagePlugin.MAX_TEXT_CHUNK = 16 << 20
logging.getLogger("PIL").propagate = False  # what it logs about damaged files is not for the terminal

PNG_SIGNATURE_BYTES = 8
MAX_PNG_CHUNKS = 100_000  # looked at; the pixels of 90 megapixels are in some ten thousand
MAX_EXIF_BYTES = 1 << 16  # the limit of a JPEG

_ORIENTATION_TAG = 0x0112
_DEEP_COLOURS = re.compile(r"RGB[AX]?;16")  # Pillow's names of raw pixels
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Colours(NamedTuple):
    """What becomes of pixels that an RGB image of 8 bits cannot hold."""

    white_level: int = MAX_WHITE
    """The value of a 16-bit image that becomes white; larger ones do, too."""
    background: tuple[int, int, int] = (255, 255, 255)
    """What is seen through transparent pixels."""


AS_USUAL = Colours()


class UnreadableImageError(Exception):
    """The file is not an image that can be decoded; the text is the reason, without the file's name."""


def read_size(file: str | os.PathLike[str] | BinaryIO) -> tuple[int, int]:
    """(height, width) of the upright image, from its header alone. Raises `UnreadableImageError`."""
    with open_image(file) as image:
        width, height = image.size
        if isinstance(image, PngImagePlugin.PngImageFile) and "exif" not in image.info and image.fp:
            image.info["exif"] = _find_png_exif(image.fp)  # for which Pillow would decode all pixels
        is_turned = _orientation(image) >= 5 and image.format != "TIFF"  # Pillow turns a TIFF itself
        return (width, height) if is_turned else (height, width)


def decode(
    file: str | os.PathLike[str] | BinaryIO, short_side: int | None = None, colours: Colours = AS_USUAL
) -> Image.Image:
    """The upright RGB image, or the first frame of an animation.

    With `short_side`, a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if its short side then still is
    `BOUND * short_side`, which costs a fraction of the time and memory.

    Raises `UnreadableImageError`.
    """
    with open_image(file) as image:
        if short_side is not None:
            image.draft(None, limit_size(image.size, short_side))
        return upright_rgb(image, colours)


def has_16_bits(file: str | os.PathLike[str]) -> bool:
    """Whether an image has 16 bits a channel, by its header alone. Raises `UnreadableImageError`."""
    with open_image(file) as image:
        return _has_16_bits(image) or _has_deep_colours(image)


def highest_value(file: str | os.PathLike[str]) -> int:
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
def open_image(file: str | os.PathLike[str] | BinaryIO) -> Iterator[Image.Image]:
    """An image with its header read, for a `with`; any error inside becomes an `UnreadableImageError`."""
    try:
        with _open(file) as image:
            limit = MAX_JPEG_PIXELS if image.format in ("JPEG", "MPO") else MAX_PIXELS
            if image.width * image.height > limit:
                raise UnreadableImageError(f"{image.width} x {image.height} pixels are more than {limit:,}")
            yield image
    except UnreadableImageError:
        raise
    except Exception as error:  # Pillow's plugins raise far more than OSError
        raise UnreadableImageError(_reason(error, file)) from error


def _open(file: str | os.PathLike[str] | BinaryIO) -> Image.Image:
    """Open an image of one of `FORMATS`, or in HEIF, whose decoder takes as long to import as all others."""
    try:
        return Image.open(file, formats=FORMATS)
    except UnidentifiedImageError:
        if not is_heif(_head(file, HEIF_HEAD_BYTES)):
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
    turned = _UPRIGHT.get(_orientation(image))
    return upright if turned is None else upright.transpose(turned)


def _has_16_bits(image: Image.Image) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether an image, not loaded yet, has 16 bits a colour, of which Pillow keeps the higher eight."""
    return bool(_DEEP_COLOURS.search(str(getattr(image, "tile", [])[:1])))


def _find_png_exif(file: IO[bytes]) -> bytes:
    """The EXIF chunk of a PNG, which may come after its pixels; empty if there is none."""
    file.seek(PNG_SIGNATURE_BYTES)
    for _ in range(MAX_PNG_CHUNKS):
        header = file.read(8)
        length, kind = struct.unpack(">I4s", header) if len(header) == 8 else (0, b"IEND")
        if kind == b"eXIf":
            return file.read(min(length, MAX_EXIF_BYTES))
        if kind == b"IEND":
            break
        file.seek(length + 4, os.SEEK_CUR)  # and its checksum
    return b""


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION_TAG, 1)
    except Exception:  # broken metadata is no reason to reject the image
        return 1
    return value if value in _UPRIGHT else 1


def _rgb(image: Image.Image, colours: Colours) -> Image.Image:
    if _has_16_bits(image):  # `convert` alone would clip everything above 255 to white
        return image.convert("I").point(lambda value: value * (255 / colours.white_level)).convert("RGB")
    if image.mode in ("I", "F"):
        raise UnreadableImageError(f"its 32 bit pixels (mode {image.mode}) have no known range")
    if image.has_transparency_data:  # the colours of transparent pixels are arbitrary
        background = Image.new("RGBA", image.size, (*colours.background, 255))
        image = Image.alpha_composite(background, image.convert("RGBA"))
    return image if image.mode == "RGB" else image.convert("RGB")


def _reason(error: Exception, file: str | os.PathLike[str] | BinaryIO) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file is gone"
    if isinstance(error, PermissionError):
        return "no permission to read the file"
    if isinstance(error, UnidentifiedImageError):
        return describe(_head(file))
    if isinstance(error, OSError) and error.errno is not None:
        return f"the file cannot be read: {error.strerror}"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200]


def _head(file: str | os.PathLike[str] | BinaryIO, count: int = HEAD_BYTES) -> bytes:
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:  # noqa: PTH123, Pillow's kind of path
            return opened.read(count)
    file.seek(0)
    return file.read(count)
