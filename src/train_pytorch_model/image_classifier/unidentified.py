"""What a file is that is no image which can be read, in words."""

import io
import os
from collections.abc import Mapping
from typing import BinaryIO

from PIL import TiffImagePlugin

File = str | os.PathLike[str] | BinaryIO
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")


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


def head_of(file: File, count: int) -> bytes:
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:  # noqa: PTH123, Pillow's kind of path
            return opened.read(count)
    file.seek(0)
    return file.read(count)


def is_heif(head: bytes) -> bool:
    """Whether a file that begins with `head` is a HEIC or HEIF photograph, whatever its name says."""
    return head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS


def describe_file(head: bytes) -> str:
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
    if head[4:8] == b"ftyp" and not is_heif(head):
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
