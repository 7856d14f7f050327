"""What the reason says about files that are no images: what they are, and what to do."""

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.painting import encode, paint

from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size


def reason_of(content: bytes) -> str:
    reasons = []
    for read in (decode, read_size):
        with pytest.raises(UnreadableImageError) as raised:
            read(io.BytesIO(content))
        reasons.append(str(raised.value))
    assert reasons[0] == reasons[1]
    return reasons[0]


def tiff(bands: int, bits: int, sample_format: int = 1) -> bytes:
    """A TIFF of 4 x 4 pixels, with its tags before its pixels."""
    tags = [(256, 4), (257, 4), (262, 1), (277, bands), (278, 4), (258, bits), (339, sample_format)]
    tags += [(273, 512), (279, 16 * bands * bits // 8)]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in sorted(tags))
    head = struct.pack("<2sHIH", b"II", 42, 8, len(tags)) + entries + bytes(4)
    return head.ljust(512, b"\0") + bytes(16 * bands * bits // 8)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "the file is empty"),
        (bytes(5000), "only zeros"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
        (b"/annex/objects/MD5E-s1--0.jpg\n", "git annex get"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(64), "HEIC"),
        (b"\xef\xbb\xbf\n<!DOCTYPE html><title>Sign in</title>", "a web page"),
        (b'<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
        (b"%PDF-1.7", "PDF"),
        (b"\xff\x4f\xff\x51\0\x29", "a JPEG 2000 image"),
        (b"\0\0\0\x18ftypmp42\0\0\0\0mp42isom" + bytes(64), "a video"),
        (b"II*\0\x10\0\0\0CR\2\0" + bytes(64), "a camera's raw file"),
        (bytes(128) + b"DICM" + b"\1" * 64, "DICOM"),
        (tiff(13, 16), "a TIFF of 13 bands of 16 bits (unsigned)"),
        (tiff(5, 8), "a TIFF of 5 bands of 8 bits (unsigned)"),
        (
            b"just a text",
            "not an image of a known format (JPEG, PNG, GIF, WebP, AVIF, HEIC, BMP, TIFF, PPM,"
            " PGM)",
        ),
    ],
)
def test_the_reason_names_what_the_file_is(content: bytes, expected: str) -> None:
    assert expected in reason_of(content)


def test_nothing_of_a_librarys_log_reaches_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    reason_of(tiff(13, 16))
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_storage_is_told_in_its_words(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImageError, match=r"^the file cannot be read: Is a directory$"):
        decode(tmp_path)


@pytest.mark.parametrize("orientation", [1, 6])
def test_avif_is_decoded_upright(orientation: int) -> None:
    image = paint("red", 1, (40, 24))
    exif = image.getexif()
    exif[0x0112] = orientation
    buffer = io.BytesIO()
    image.save(buffer, "AVIF", exif=exif, quality=95)
    upright = image.transpose(Image.Transpose.ROTATE_270) if orientation == 6 else image
    assert read_size(io.BytesIO(buffer.getvalue())) == upright.size[::-1]
    found = np.asarray(decode(io.BytesIO(buffer.getvalue()))).astype(int)
    assert np.abs(found - np.asarray(upright)).mean() < 12


def test_a_photograph_under_another_formats_name_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(encode(paint("red", 1), "AVIF"))
    assert decode(tmp_path / "a.jpg").size == (32, 32)
