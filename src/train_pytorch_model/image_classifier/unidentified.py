"""What a file is, in words, if it is no image that can be read."""

import io
import os
from collections.abc import Mapping
from typing import BinaryIO

from PIL import TiffImagePlugin

File = str | os.PathLike[str] | BinaryIO
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
AVIF_BRANDS = (b"avif", b"avis")
READABLE_FORMATS = "JPEG, PNG, GIF, WebP, AVIF, HEIC, BMP, TIFF, PPM, PGM"
# First bytes → what such a file is. Those that are letters are in lower case.
SIGNATURES: Mapping[bytes, str] = {
    b"version https://git-lfs.github.com/": (
        "a pointer of git-LFS, not the image: run `git lfs pull`"
    ),
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
    """Return the first bytes of a file."""
    if isinstance(file, str | os.PathLike):
        with open(file, "rb") as opened:  # noqa: PTH123, Pillow's kind of path
            return opened.read(count)
    file.seek(0)
    return file.read(count)


def is_heif(head: bytes) -> bool:
    """Return whether a file that begins with `head` is a HEIC or HEIF photograph."""
    return head[4:8] == b"ftyp" and head[8:12] in HEIF_BRANDS


def describe_file(head: bytes) -> str:
    """Return what a file that begins with `head` is, and what to do about it.

    It is no image of `FORMATS`.
    """
    return (
        _placeholder(head)
        or _media_container(head)
        or _format_of_devices(head)
        or _by_signature(head)
        or f"not an image of a known format ({READABLE_FORMATS})"
    )


def _placeholder(head: bytes) -> str:
    """Return what a file without content is; empty for any other."""
    if not head:
        return "the file is empty: a download that failed, or a placeholder of cloud storage"
    if not any(head):
        return (
            "the file holds only zeros: a copy that was cut off, or a placeholder of cloud storage"
        )
    return ""


def _media_container(head: bytes) -> str:
    """Return what a file of ISO's base media format is, other than HEIF; empty for any other."""
    if head[4:8] != b"ftyp" or is_heif(head):
        return ""
    if head[8:12] in AVIF_BRANDS:
        return "an AVIF image that is damaged, or Pillow here has no AVIF"
    return "a video, not an image"


def _format_of_devices(head: bytes) -> str:
    """Return what a camera's, a scanner's or a microscope's file is; empty for any other."""
    if head[:4] == b"II*\0" and head[8:10] == b"CR":
        return "a camera's raw file: convert it to JPEG"
    if head[128:132] == b"DICM":
        return "a DICOM file: convert it to PNG"
    if head[:4] in (b"II*\0", b"MM\0*"):
        return _tiff_layout(head)
    return ""


def _by_signature(head: bytes) -> str:
    """Return what a file with one of `SIGNATURES` is; empty for any other."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    for signature, text in SIGNATURES.items():
        if start.startswith(signature):
            return text
    return ""


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
