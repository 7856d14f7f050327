"""From any image file to upright RGB pixels, or to one reason why not."""

import io
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import Image, PngImagePlugin
from tests.painting import encode

from train_pytorch_model.image_classifier.decoding import Colours, UnreadableImageError, decode, read_size
from train_pytorch_model.image_classifier.pixels import read_pixels

WIDTH, HEIGHT = 24, 16


def picture() -> Image.Image:
    """An RGB picture without any symmetry, smooth enough for JPEG."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    pixels = np.stack([x * 10, y * 15, np.full_like(x, 40)], axis=2)
    pixels[:5, :7] = 255
    return Image.fromarray(pixels.astype(np.uint8))


def pixels_of(data: bytes, short_side: int | None = None) -> np.ndarray:
    if short_side is not None:
        return read_pixels(io.BytesIO(data), short_side).astype(int)
    image = decode(io.BytesIO(data))
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def png_of(width: int, height: int, depth: int = 8, colour: int = 2, body: bytes = b"") -> bytes:
    """A PNG with a header and, without `body`, no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG whose header claims a size that its pixels do not have."""
    data = saved(picture(), "JPEG")
    start = data.index(b"\xff\xc0") + 5
    return data[:start] + struct.pack(">HH", height, width) + data[start + 4 :]


# ── Upright ──────────────────────────────────────────────────────────────────────────────────────

STORED_AS = {  # orientation → how an upright picture was turned when it was stored
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize(("kind", "tolerance"), [("JPEG", 24), ("PNG", 0), ("TIFF", 0), ("WEBP", 0)], ids=str)
@pytest.mark.parametrize("orientation", STORED_AS)
def test_every_orientation_becomes_the_upright_picture(
    kind: str, tolerance: int, orientation: int, mode: str
) -> None:
    upright = picture().convert(mode)
    turned = STORED_AS[orientation]
    stored = upright if turned is None else upright.transpose(turned)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options: dict[str, Any] = {}
    if kind == "JPEG":
        options = {"quality": 100, "subsampling": 0}
    elif kind == "WEBP":
        options = {"lossless": True}
    data = saved(stored, kind, exif=exif, **options)
    decoded = pixels_of(data)
    assert decoded.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(decoded - np.asarray(upright.convert("RGB"))).max() <= tolerance
    assert read_size(io.BytesIO(data)) == (HEIGHT, WIDTH)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_invalid_orientation_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(picture(), "PNG", exif=exif)
    assert read_size(io.BytesIO(data)) == (HEIGHT, WIDTH)
    assert (pixels_of(data) == np.asarray(picture())).all()


def test_a_picture_with_broken_metadata_is_decoded() -> None:
    data = saved(picture(), "PNG", exif=b"Exif\0\0MM\0*\0\0\xff\xff broken")
    assert read_size(io.BytesIO(data)) == (HEIGHT, WIDTH)
    assert (pixels_of(data) == np.asarray(picture())).all()


# ── Pixels ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "PPM"])
def test_lossless_files_keep_every_pixel(kind: str) -> None:
    assert (pixels_of(encode(picture(), kind)) == np.asarray(picture())).all()


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (257, 1), (32896, 128), (65278, 254), (65535, 255), (514, 2)]
)
@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled_and_not_clipped(kind: str, value: int, expected: int) -> None:
    image = Image.fromarray(np.full((2, 3), value, dtype=np.uint16))
    assert (pixels_of(encode(image, kind)) == expected).all()


def test_a_16_bit_ramp_stays_a_ramp() -> None:
    ramp = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(1, 256)
    decoded = pixels_of(encode(Image.fromarray(ramp)))[0, :, 0]
    assert np.abs(decoded - np.arange(256)).max() <= 1
    assert (np.diff(decoded) >= 0).all()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGBA", "P"])
def test_other_modes_become_rgb(mode: str) -> None:
    black_and_white = np.zeros((4, 6), dtype=np.uint8)
    black_and_white[:2] = 255
    data = encode(Image.fromarray(black_and_white).convert(mode))
    assert (pixels_of(data) == black_and_white[..., None]).all()


@pytest.mark.parametrize("background", [(255, 255, 255), (0, 10, 20)])
def test_what_is_transparent_shows_the_background(background: tuple[int, int, int]) -> None:
    rgba = np.zeros((1, 3, 4), dtype=np.uint8)
    rgba[..., 0] = 200
    rgba[0, :, 3] = 255, 128, 0
    seen = np.asarray(decode(io.BytesIO(encode(Image.fromarray(rgba))), colours=Colours(65_535, background)))
    half = [
        (opaque * 128 + behind * 127) / 255 for opaque, behind in zip((200, 0, 0), background, strict=True)
    ]
    assert seen[0, 0].tolist() == [200, 0, 0]
    assert np.abs(seen[0, 1] - np.array(half)).max() <= 1
    assert seen[0, 2].tolist() == list(background)


def test_a_heic_photograph_is_turned_by_its_decoder_alone() -> None:
    image = picture().resize((64, 48))
    pillow_heif.register_heif_opener()
    exif = Image.Exif()
    exif[0x0112] = 6  # only repeats the turn that the file demands of decoders, here none
    data = saved(image, "HEIF", quality=100, exif=exif)
    assert read_size(io.BytesIO(data)) == (48, 64)
    assert np.abs(pixels_of(data) - np.asarray(image).astype(int)).mean() < 12  # lossy
    with pytest.raises(UnreadableImageError):
        decode(io.BytesIO(data[: len(data) // 2]))


@pytest.mark.parametrize("transparency", [1, b"\xff\x80\x00"])
def test_a_palette_may_have_transparent_entries(transparency: int | bytes) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    for x in range(3):
        image.putpixel((x, 0), x)
    data = saved(image, "PNG", transparency=transparency)
    first, second, third = pixels_of(data)[0].tolist()
    hidden = [255, 255, 255]
    assert first == [10, 20, 30]
    assert second == (hidden if transparency == 1 else [147, 152, 157])
    assert third == ([70, 80, 90] if transparency == 1 else hidden)


def test_cmyk_becomes_rgb() -> None:
    data = saved(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100)
    assert np.abs(pixels_of(data) - [255, 0, 0]).max() <= 8


def test_the_first_frame_of_an_animation_is_decoded() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert (pixels_of(data) == [255, 0, 0]).all()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_an_image_of_one_pixel_is_decoded(kind: str) -> None:
    data = encode(Image.new("RGB", (1, 1), "white"), kind)
    assert read_size(io.BytesIO(data)) == (1, 1)
    assert pixels_of(data, 224).shape == (1, 1, 3)


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize(
    ("size", "short_side", "expected"),
    [
        pytest.param((400, 300), 100, (200, 150), id="reduced to one and a half times"),
        pytest.param((300, 400), 100, (150, 200), id="upright"),
        pytest.param((150, 900), 100, (150, 900), id="just within the bound"),
        pytest.param((40, 30), 100, (40, 30), id="never enlarged"),
        pytest.param((1200, 400), 33, (150, 50), id="an odd bound is rounded up"),
        pytest.param((2000, 2), 1, (2000, 2), id="a line"),
    ],
)
def test_the_short_side_is_bounded(
    kind: str, size: tuple[int, int], short_side: int, expected: tuple[int, int]
) -> None:
    data = io.BytesIO(encode(Image.new("RGB", size, "red"), kind))
    assert read_pixels(data, short_side).shape[1::-1] == expected
    data.seek(0)
    assert decode(data).size == size
    data.seek(0)
    assert read_size(data) == size[::-1]


def test_a_bounded_picture_is_the_same_picture() -> None:
    large = picture().resize((WIDTH * 40, HEIGHT * 40), Image.Resampling.BILINEAR)
    expected = np.asarray(large.resize((36, 24), Image.Resampling.BOX)).astype(int)
    assert np.abs(pixels_of(encode(large), 16) - expected).mean() < 3
    assert np.abs(pixels_of(saved(large, "JPEG", quality=95), 16) - expected).mean() < 6


def test_a_rotated_picture_is_bounded_on_its_short_side_too() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.new("RGB", (400, 300)), "JPEG", exif=exif)
    assert read_pixels(io.BytesIO(data), 100).shape == (200, 150, 3)


# ── Unreadable files ─────────────────────────────────────────────────────────────────────────────


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
        pytest.param(png_of(10_000, 9_001), "10000 x 9001 pixels are more than 90,000,000", id="a png bomb"),
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
    with pytest.raises(UnreadableImageError, match=r"15000 x 12001 pixels are more than 180,000,000"):
        read_size(io.BytesIO(jpeg_of(15_000, 12_001)))


def test_the_pixel_limit_applies_to_the_header() -> None:
    with pytest.raises(UnreadableImageError, match=r"more than 90,000,000"):
        decode(io.BytesIO(png_of(10_000, 9_001)), 8)


def test_32_bit_pixels_are_refused(tmp_path: Path) -> None:
    for mode, dtype in {"I": np.int32, "F": np.float32}.items():
        path = tmp_path / f"{mode}.tif"
        Image.fromarray(np.zeros((2, 2), dtype=dtype)).save(path)
        with pytest.raises(UnreadableImageError, match=rf"its 32 bit pixels \(mode {mode}\) have no known"):
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
    data = saved(picture(), "PNG")
    return data[:-12] + chunk + struct.pack(">I", zlib.crc32(chunk[4:])) + data[-12:]


def test_the_size_of_a_png_is_read_without_its_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    assert decode(io.BytesIO(png_with_late_exif())).size == (HEIGHT, WIDTH)

    def refuse(_: Image.Image) -> None:
        raise AssertionError("the pixels are not needed")

    monkeypatch.setattr(PngImagePlugin.PngImageFile, "load", refuse)
    assert read_size(io.BytesIO(saved(picture(), "PNG"))) == (HEIGHT, WIDTH)
    assert read_size(io.BytesIO(png_with_late_exif())) == (WIDTH, HEIGHT)
    assert read_size(io.BytesIO(saved(picture(), "PNG")[:-20])) == (HEIGHT, WIDTH)


def test_large_metadata_and_a_second_picture_do_not_matter() -> None:
    texts = PngImagePlugin.PngInfo()
    texts.add_text("XML:com.adobe.xmp", "x" * 3_000_000, zip=True)
    for data in (
        saved(picture(), "PNG", pnginfo=texts),
        saved(picture(), "PNG", icc_profile=bytes(3_000_000)),
    ):
        assert decode(io.BytesIO(data)).size == (WIDTH, HEIGHT)
    large = Image.new("RGB", (12_000, 9_000))
    assert read_size(io.BytesIO(saved(large, "MPO", save_all=True, append_images=[picture()]))) == (
        9000,
        12_000,
    )
