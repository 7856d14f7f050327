"""From the bytes of an image file to an upright RGB image of bounded size, or why there is none."""

import io
import logging
import math
import os
import re
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, BinaryIO, NamedTuple

import numpy as np
from PIL import Image, PngImagePlugin, TiffImagePlugin, UnidentifiedImageError

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

PNG_SIGNATURE_BYTES = 8
MAX_PNG_CHUNKS = 100_000  # looked at; the pixels of 90 megapixels are in some ten thousand
MAX_EXIF_BYTES = 1 << 16  # the limit of a JPEG
HEAD_BYTES = (
    1 << 16
)  # of a file; a TIFF's description may be behind its pixels, and is unknown then
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")

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


TAKEN = "JPEG, PNG, GIF, WebP, AVIF, HEIC, BMP, TIFF, PPM, PGM"
# First bytes → what such a file is. Those that are letters are in lower case.
SIGNATURES: Mapping[bytes, str] = {
    b"version https://git-lfs.github.com/": "a pointer of git-LFS, not the image: run `git lfs pull`",
    b"/annex/objects/": "a pointer of git-annex, not the image: run `git annex get`",
    b"../.git/annex/": "a pointer of git-annex, not the image: run `git annex get`",
    b"<!doctype html": "a web page, not an image: its download failed",
    b"<html": "a web page, not an image: its download failed",
    b"<svg": "an SVG drawing: convert it to PNG",
    b"<?xml": "an XML text, such as an SVG drawing or the error of a download, not an image",
    b"{": "a JSON text, not an image",
    b"gif8": "a damaged GIF",
    b"%pdf": "a PDF: convert it to PNG",
    b"8bps": "a Photoshop file: convert it to PNG",
    b"pk\x03\x04": "a zip archive, not an image",
    b"\x93numpy": "a NumPy array: convert it to PNG",
    b"\xff\x0a": "a JPEG XL image: convert it to JPEG or PNG",
    b"\x00\x00\x00\x0cjxl ": "a JPEG XL image: convert it to JPEG or PNG",
    b"\x00\x00\x00\x0cjp  ": "a JPEG 2000 image: convert it to JPEG or PNG",
    b"\xffo\xffq": "a JPEG 2000 image: convert it to JPEG or PNG",
}
SAMPLE_KINDS = {1: "unsigned", 2: "signed", 3: "floating-point", 5: "complex", 6: "complex"}

File = str | os.PathLike[str] | BinaryIO


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
            image.info["exif"] = _find_png_exif(
                image.fp
            )  # for which Pillow would decode all pixels
        is_turned = (
            _orientation(image) >= 5 and image.format != "TIFF"
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
        if not _is_heif(_head(file, 12)):
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
    orientation = _orientation(image)
    return upright.transpose(_UPRIGHT[orientation]) if orientation in _UPRIGHT else upright


def _has_16_bits(image: Image.Image) -> bool:
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def _has_deep_colours(image: Image.Image) -> bool:
    """Whether an image, not loaded yet, has 16 bits a colour, of which Pillow keeps the higher
    eight.
    """
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
            return _describe(_head(file, HEAD_BYTES))
        case OSError(errno=int()):
            return f"the file cannot be read: {error.strerror}"
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def _head(file: File, count: int) -> bytes:
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:  # noqa: PTH123, Pillow's kind of path
            return opened.read(count)
    file.seek(0)
    return file.read(count)


def _is_heif(head: bytes) -> bool:
    """Whether a file that begins with `head` is a HEIC or HEIF photograph, whatever its name says."""
    return head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS


def _describe(head: bytes) -> str:
    """What a file that begins with `head` is, which is no image of `FORMATS`, and what to do about
    it.
    """
    if not head:
        return "the file is empty: a download that failed, or a placeholder of cloud storage"
    if not any(head):
        return (
            "the file holds only zeros: a copy that was cut off, or a placeholder of cloud storage"
        )
    if head[4:8] == b"ftyp" and head[8:12] in (b"avif", b"avis"):
        return "an AVIF image that is damaged, or Pillow here has no AVIF"
    if head[4:8] == b"ftyp" and not _is_heif(head):
        return "a video, not an image"
    if head[:4] == b"II*\0" and head[8:10] == b"CR":
        return "a camera's raw file: convert it to JPEG"
    if head[128:132] == b"DICM":
        return "a DICOM file: convert it to PNG"
    if head[:4] in (b"II*\0", b"MM\0*") and (layout := _tiff_layout(head)):
        return layout
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    fallback = f"not an image of a known format ({TAKEN})"
    return next(
        (text for signature, text in SIGNATURES.items() if start.startswith(signature)), fallback
    )


def _tiff_layout(head: bytes) -> str:
    """Return what is unusual about a TIFF's bands; empty if it cannot be told."""
    try:
        tags = TiffImagePlugin.ImageFileDirectory_v2(head[:8])
        file = io.BytesIO(head)
        file.seek(tags.next)
        tags.load(file)
        bits, bands = max(tags.get(258, (1,))), tags.get(277, 1)
        kind = SAMPLE_KINDS.get(tags.get(339, (1,))[0], "unknown")
    except Exception:  # Pillow's parser raises far more than OSError
        return ""
    samples = f"{bands} bands of {bits} bits" if bands > 1 else f"{bits} bits"
    return f"a TIFF of {samples} ({kind}): convert it to unsigned 8 bits, or one band of 16"
