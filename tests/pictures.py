"""Image files whose pixels or headers are known."""

import struct
import zlib

import numpy as np
from PIL import Image

from tests.painting import encode

WIDTH, HEIGHT = 24, 16


def picture() -> Image.Image:
    """An RGB picture without any symmetry, smooth enough for JPEG."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    pixels = np.stack([x * 10, y * 15, np.full_like(x, 40)], axis=2)
    pixels[:5, :7] = 255
    return Image.fromarray(pixels.astype(np.uint8))


def png_of(width: int, height: int, depth: int = 8, colour: int = 2, body: bytes = b"") -> bytes:
    """A PNG with a header and, without `body`, no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG whose header claims a size that its pixels do not have."""
    data = encode(picture(), "JPEG")
    start = data.index(b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]
