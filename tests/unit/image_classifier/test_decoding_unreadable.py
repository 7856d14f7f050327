"""Files that are no image, or not a whole one: one reason each. What does not matter to an image's
size.
"""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from tests.painting import encode
from tests.pictures import HEIGHT, WIDTH, jpeg_of, picture, png_of

from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size


def test_a_truncated_picture_is_unreadable_but_its_size_is_not() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    for kind in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM"):
        data = encode(noise, kind)
        data = data[: len(data) // 2] if kind != "TIFF" else data[:-100]
        with pytest.raises(UnreadableImageError):
            decode(io.BytesIO(data))
    jpeg = encode(noise, "JPEG")
    assert read_size(io.BytesIO(jpeg[: len(jpeg) // 2])) == (64, 64)
    with pytest.raises(UnreadableImageError, match=r"OSError: image file is truncated"):
        decode(io.BytesIO(jpeg[: len(jpeg) // 2]), 16)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"", "the file is empty", id="nothing"),
        pytest.param(b"what", "not an image of a known format", id="an unsupported format"),
        pytest.param(b"\x89PNG\r\n\x1a\n", "not an image of a known format", id="a signature only"),
        pytest.param(b"GIF89a" + b"\0" * 30, "a damaged GIF", id="no pixels"),
        pytest.param(
            png_of(10_000, 9_001), "10000 x 9001 pixels are more than 90,000,000", id="a png bomb"
        ),
        pytest.param(
            png_of(60_000, 50_000),
            "DecompressionBombError: Image size (3000000000 pixels) exceeds limit",
            id="a png beyond every limit",
        ),
        pytest.param(
            jpeg_of(65_000, 60_000),
            "DecompressionBombError: Image size (3900000000 pixels) exceeds limit",
            id="a jpeg beyond every limit",
        ),
    ],
)
def test_files_that_are_not_images_have_a_reason(data: bytes, reason: str) -> None:
    for read in (read_size, decode):
        with pytest.raises(UnreadableImageError) as raised:
            read(io.BytesIO(data))
        assert str(raised.value).startswith(reason)


@pytest.mark.filterwarnings("default::PIL.Image.DecompressionBombWarning")
def test_a_jpeg_may_have_twice_the_pixels(recwarn: pytest.WarningsRecorder) -> None:
    assert read_size(io.BytesIO(jpeg_of(15_000, 12_000))) == (12_000, 15_000)
    assert not recwarn.list
    with pytest.raises(
        UnreadableImageError, match=r"15000 x 12001 pixels are more than 180,000,000"
    ):
        read_size(io.BytesIO(jpeg_of(15_000, 12_001)))


def test_the_pixel_limit_applies_to_the_header() -> None:
    with pytest.raises(UnreadableImageError, match=r"more than 90,000,000"):
        decode(io.BytesIO(png_of(10_000, 9_001)), 8)


def test_32_bit_pixels_are_refused(tmp_path: Path) -> None:
    for mode, dtype in {"I": np.int32, "F": np.float32}.items():
        path = tmp_path / f"{mode}.tif"
        Image.fromarray(np.zeros((2, 2), dtype=dtype)).save(path)
        with pytest.raises(
            UnreadableImageError, match=rf"its 32 bit pixels \(mode {mode}\) have no known"
        ):
            decode(path)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    for read in (read_size, decode):
        with pytest.raises(UnreadableImageError, match=r"^the file is gone$"):
            read(tmp_path / "gone.png")


def test_a_file_without_read_permission_is_reported() -> None:
    class Locked(io.BytesIO):
        """Raises the error itself: tests may run as root, which can read every file."""

        def read(self, size: int | None = -1) -> bytes:  # noqa: ARG002
            raise PermissionError(13, "Permission denied")

    for read in (read_size, decode):
        with pytest.raises(UnreadableImageError, match=r"^no permission to read the file$"):
            read(Locked())


def test_a_reason_is_one_line_of_bounded_length() -> None:
    class Chatty(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:  # noqa: ARG002
            raise ValueError("line\n" * 100)

    with pytest.raises(UnreadableImageError) as raised:
        decode(Chatty())
    assert str(raised.value).startswith("ValueError: line line")
    assert len(str(raised.value)) == 200


def png_with_late_exif() -> bytes:
    """A PNG whose orientation comes after its pixels."""
    exif = Image.Exif()
    exif[0x0112] = 6
    content = exif.tobytes().removeprefix(b"Exif\0\0")
    chunk = struct.pack(">I", len(content)) + b"eXIf" + content
    data = encode(picture(), "PNG")
    return data[:-12] + chunk + struct.pack(">I", zlib.crc32(chunk[4:])) + data[-12:]


def test_the_size_of_a_png_is_read_without_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode(io.BytesIO(png_with_late_exif())).size == (HEIGHT, WIDTH)

    def refuse(_: Image.Image) -> None:
        raise AssertionError("the pixels are not needed")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", refuse)
    assert read_size(io.BytesIO(encode(picture(), "PNG"))) == (HEIGHT, WIDTH)
    assert read_size(io.BytesIO(png_with_late_exif())) == (WIDTH, HEIGHT)
    assert read_size(io.BytesIO(encode(picture(), "PNG")[:-20])) == (HEIGHT, WIDTH)


def test_large_metadata_and_a_second_picture_do_not_matter() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("XML:com.adobe.xmp", "x" * 3_000_000, zip=True)
    for data in (
        encode(picture(), "PNG", pnginfo=texts),
        encode(picture(), "PNG", icc_profile=bytes(3_000_000)),
    ):
        assert decode(io.BytesIO(data)).size == (WIDTH, HEIGHT)
    large = Image.new("RGB", (12_000, 9_000))
    assert read_size(
        io.BytesIO(encode(large, "MPO", save_all=True, append_images=[picture()]))
    ) == (
        9000,
        12_000,
    )
