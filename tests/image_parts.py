"""Image files put together from parts that no encoder puts there: metadata in odd places."""

import struct
import zlib

import numpy as np

from tests.painting import encode
from tests.pictures import picture

XMP_NAME = b"http://ns.adobe.com/xap/1.0/\0"


def entry(value: int, kind: int = 3, tag: int = 0x0112, order: str = "<") -> bytes:
    """An entry of EXIF with one value, by default an orientation of type SHORT."""
    form = order + ("HHIHH" if kind == 3 else "HHII")
    values = (value, 0) if kind == 3 else (value,)
    return struct.pack(form, tag, kind, 1, *values)


def exif_of(*entries: bytes, order: str = "<", thumbnail: bytes = b"") -> bytes:
    """EXIF without a prefix: the first directory's entries and the one entry of the second."""
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "I", 8)
    first = struct.pack(order + "H", len(entries)) + b"".join(entries)
    if not thumbnail:
        return head + first + bytes(4)
    place = len(head) + len(first) + 4
    second = struct.pack(order + "H", 1) + thumbnail + bytes(4)
    return head + first + struct.pack(order + "I", place) + second


def segment(marker: int, text: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(text) + 2) + text


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def jpeg_with(*segments: bytes) -> bytes:
    """The picture as a JPEG with more segments before all others."""
    jpeg = encode(picture(), "JPEG", quality=95)
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def png_with(*before: bytes, after: tuple[bytes, ...] = (), chunk_bytes: int = 1 << 20) -> bytes:
    """The picture as a PNG with more chunks around those of its pixels, of so many bytes."""
    png = encode(picture(), "PNG")
    start = png.index(b"IDAT") - 4
    (length,) = struct.unpack(">I", png[start : start + 4])
    pixels = png[start + 8 : start + 8 + length]
    chunks = [
        chunk(b"IDAT", pixels[place : place + chunk_bytes])
        for place in range(0, length, chunk_bytes)
    ]
    return b"".join([png[:start], *before, *chunks, *after, chunk(b"IEND", b"")])


def exif_segment(exif: bytes) -> bytes:
    return segment(0xE1, b"Exif\0\0" + exif)


def xmp_segment(xmp: bytes) -> bytes:
    return segment(0xE1, XMP_NAME + xmp)


def xmp_chunk(xmp: bytes) -> bytes:
    return chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp)


def png_of_samples(
    samples: np.ndarray,
    depth: int,
    colour: int = 0,
    *,
    palette: bytes = b"",
    transparent: bytes = b"",
) -> bytes:
    """A PNG of samples (height, width, channels) of so many bits and of that type of colour."""
    height, width, _ = samples.shape
    bits = (samples.reshape(height, -1, 1) >> np.arange(depth)[::-1]) & 1
    rows = np.packbits(bits.astype(np.uint8).reshape(height, -1), axis=1)
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"PLTE", palette) if palette else b"",
            chunk(b"tRNS", transparent) if transparent else b"",
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in rows))),
            chunk(b"IEND", b""),
        ]
    )
