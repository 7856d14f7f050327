"""Where a PNG file keeps its Exif data, and how an image is turned upright by it."""

import os
import struct
from typing import IO

from PIL import Image

PNG_SIGNATURE_BYTES = 8
MAX_PNG_CHUNKS = 100_000  # looked at; the pixels of 90 megapixels are in some ten thousand
MAX_EXIF_BYTES = 1 << 16  # the limit of a JPEG

_TEXTS = (b"tEXt", b"zTXt", b"iTXt")
_NAMES_OF_ORIENTING_TEXTS = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")
MAX_NAME_BYTES = 80  # of a text, with a zero

_ORIENTATION_TAG = 0x0112
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def find_png_exif(file: IO[bytes]) -> bytes | None:
    """Return the last EXIF chunk of a PNG, which may come after its pixels; empty if there is none.

    None: a text after its pixels may tell the orientation, too, which is known once they are
    decoded.
    """
    exif = b""
    are_pixels_before = False
    file.seek(PNG_SIGNATURE_BYTES)
    for _ in range(MAX_PNG_CHUNKS):
        header = file.read(8)
        if len(header) < 8:
            break
        length, kind = struct.unpack(">I4s", header)
        if kind == b"IEND":
            break
        num_read = 0
        if kind == b"eXIf":
            exif = file.read(min(length, MAX_EXIF_BYTES))
            num_read = len(exif)
        elif kind == b"IDAT":
            are_pixels_before = True
        elif kind in _TEXTS and are_pixels_before:
            name = file.read(min(length, MAX_NAME_BYTES))
            num_read = len(name)
            if name.startswith(_NAMES_OF_ORIENTING_TEXTS):
                return None
        file.seek(length - num_read + 4, os.SEEK_CUR)  # and its checksum
    return exif


def orientation_of(image: Image.Image) -> int:
    """Return the Exif orientation of an image: 1, or one of `UPRIGHT`."""
    try:
        # Not `image.getexif`: a PNG's would decode all pixels, in search of a chunk after them.
        value = Image.Image.getexif(image).get(_ORIENTATION_TAG, 1)
    except Exception:  # broken metadata is no reason to reject the image
        return 1
    return value if value in UPRIGHT else 1
