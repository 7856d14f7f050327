"""From any image file to upright RGB pixels, or to one reason why not."""

import io
from typing import Any

import numpy as np
import pillow_heif
import pytest
from PIL import Image
from tests.painting import encode
from tests.pictures import HEIGHT, WIDTH, picture

from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, decode, read_size
from train_pytorch_model.image_classifier.pixels import read_pixels


def pixels_of(data: bytes, short_side: int | None = None) -> np.ndarray:
    if short_side is not None:
        return read_pixels(io.BytesIO(data), short_side).astype(int)
    image = decode(io.BytesIO(data))
    assert image.mode == "RGB"
    return np.asarray(image).astype(int)


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
@pytest.mark.parametrize(
    ("kind", "tolerance"), [("JPEG", 24), ("PNG", 0), ("TIFF", 0), ("WEBP", 0)], ids=str
)
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
    data = encode(stored, kind, exif=exif, **options)
    decoded = pixels_of(data)
    assert decoded.shape == (HEIGHT, WIDTH, 3)
    assert np.abs(decoded - np.asarray(upright.convert("RGB"))).max() <= tolerance
    assert read_size(io.BytesIO(data)) == (HEIGHT, WIDTH)


@pytest.mark.parametrize("orientation", [0, 9, 65535])
def test_an_invalid_orientation_is_ignored(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encode(picture(), "PNG", exif=exif)
    assert read_size(io.BytesIO(data)) == (HEIGHT, WIDTH)
    assert (pixels_of(data) == np.asarray(picture())).all()


def test_a_picture_with_broken_metadata_is_decoded() -> None:
    data = encode(picture(), "PNG", exif=b"Exif\0\0MM\0*\0\0\xff\xff broken")
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
    seen = np.asarray(
        decode(io.BytesIO(encode(Image.fromarray(rgba))), colours=Colours(65_535, background))
    )
    half = [
        (opaque * 128 + behind * 127) / 255
        for opaque, behind in zip((200, 0, 0), background, strict=True)
    ]
    assert seen[0, 0].tolist() == [200, 0, 0]
    assert np.abs(seen[0, 1] - np.array(half)).max() <= 1
    assert seen[0, 2].tolist() == list(background)


def test_a_heic_photograph_is_turned_by_its_decoder_alone() -> None:
    image = picture().resize((64, 48))
    pillow_heif.register_heif_opener()
    exif = Image.Exif()
    exif[0x0112] = 6  # only repeats the turn that the file demands of decoders, here none
    data = encode(image, "HEIF", quality=100, exif=exif)
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
    data = encode(image, "PNG", transparency=transparency)
    first, second, third = pixels_of(data)[0].tolist()
    hidden = [255, 255, 255]
    assert first == [10, 20, 30]
    assert second == (hidden if transparency == 1 else [147, 152, 157])
    assert third == ([70, 80, 90] if transparency == 1 else hidden)


def test_cmyk_becomes_rgb() -> None:
    data = encode(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100)
    assert np.abs(pixels_of(data) - [255, 0, 0]).max() <= 8


def test_the_first_frame_of_an_animation_is_decoded() -> None:
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    data = encode(frames[0], "GIF", save_all=True, append_images=frames[1:])
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
    assert np.abs(pixels_of(encode(large, "JPEG", quality=95), 16) - expected).mean() < 6


def test_a_rotated_picture_is_bounded_on_its_short_side_too() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encode(Image.new("RGB", (400, 300)), "JPEG", exif=exif)
    assert read_pixels(io.BytesIO(data), 100).shape == (200, 150, 3)
