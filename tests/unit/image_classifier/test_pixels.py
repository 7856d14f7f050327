"""Fast decoding and resizing, and how close the pixels are to the best quality."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.painting import encode

from train_pytorch_model.data.framing import frame, frame_at_most
from train_pytorch_model.image_classifier.decoding import (
    Pixels,
    UnreadableImageError,
    decode,
    limit_size,
)
from train_pytorch_model.image_classifier.pixels import (
    read_pixels,
    resize,
    view,
)
from train_pytorch_model.image_classifier.spec import Framing


def photograph(width: int, height: int) -> Image.Image:
    """A synthetic photograph of smooth areas, hard edges and some noise."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[0:height, 0:width]
    rings = 90 * np.sign(np.sin(np.hypot(x - width / 3, y - height / 2) / (width / 40)))
    painted = np.stack([128 + rings, 255 * x / width, 255 * y / height], axis=2)
    return Image.fromarray(
        (painted + random.normal(0, 6, painted.shape)).clip(0, 255).astype(np.uint8)
    )


def jpeg(image: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", **{"quality": 90, **options})
    return buffer.getvalue()


def psnr(one: Pixels, other: Pixels) -> float:
    """Peak signal-to-noise ratio in decibels; infinite for equal images."""
    error = np.square(one.astype(float) - other.astype(float)).mean()
    return float(10 * np.log10(255**2 / error)) if error else np.inf


def best(data: bytes, short_side: int) -> Pixels:
    """Decoded at full size and resized by Pillow's Lanczos filter, which keeps the most detail."""
    whole = decode(io.BytesIO(data))
    return np.asarray(whole.resize(limit_size(whole.size, short_side), Image.Resampling.LANCZOS))


@pytest.mark.parametrize(
    ("size", "kind", "decibels"),
    [
        pytest.param((90, 60), "JPEG", np.inf, id="a JPEG within the bound"),
        pytest.param((90, 60), "PNG", np.inf, id="a PNG within the bound"),
        pytest.param((250, 190), "JPEG", 30, id="a JPEG decoded whole and reduced"),
        pytest.param((250, 190), "PNG", 30, id="a PNG reduced"),
        pytest.param((800, 600), "JPEG", 27, id="a JPEG decoded at a quarter and reduced"),
        pytest.param((768, 576), "JPEG", 27, id="a JPEG decoded at a quarter"),
    ],
)
def test_every_decoding_path_is_close_to_the_best_quality(
    size: tuple[int, int], kind: str, decibels: float
) -> None:
    data = encode(photograph(*size)) if kind == "PNG" else jpeg(photograph(*size))
    found = read_pixels(io.BytesIO(data), 96)
    assert found.shape == best(data, 96).shape
    assert found.dtype == np.uint8
    assert psnr(found, best(data, 96)) >= decibels


@pytest.mark.parametrize("size", [(801, 603), (1700, 1300), (3301, 2500)])
def test_a_picture_is_reduced_alike_from_any_format(size: tuple[int, int]) -> None:
    picture = photograph(*size)
    files = (
        encode(picture, compress_level=1),
        encode(picture, "JPEG", quality=98, subsampling="4:4:4"),
    )
    png, jpeg_ = (read_pixels(io.BytesIO(file), 96).astype(int) for file in files)
    assert np.abs(png - jpeg_).mean() < 0.6


@pytest.mark.parametrize("to", [(96, 128), (50, 33), (300, 420)])
def test_resizing_matches_pillows_bilinear_filter(to: tuple[int, int]) -> None:
    image = photograph(250, 190)
    expected = np.asarray(image.resize(to[::-1], Image.Resampling.BILINEAR))
    resized = resize(np.array(image), *to)
    assert resized.flags.c_contiguous
    assert psnr(resized, expected) > 50


def test_a_view_is_the_framed_image() -> None:
    data = jpeg(photograph(90, 60))
    framing = Framing(60, 60, 0.875)
    assert (
        view(read_pixels(io.BytesIO(data), framing.short_side), framing)
        == framing.apply(decode(io.BytesIO(data)))
    ).all()
    smaller = Framing(24, 24, 0.875)  # the bounded image is 36 px high
    found = view(read_pixels(io.BytesIO(data), smaller.short_side), smaller)
    assert psnr(found, smaller.apply(decode(io.BytesIO(data)))) > 30


@pytest.mark.parametrize("size", [(41, 31), (33, 90), (60, 40)])
@pytest.mark.parametrize(
    "framing", [Framing(16, 16, 0.875), Framing(12, 20, 0.5), Framing(64, 60, 0.875)]
)
def test_training_frames_nearly_match_the_inference_view(
    size: tuple[int, int], framing: Framing
) -> None:
    image = ramp(*size)
    whole = Framing(framing.height, framing.width, 1.0)
    expected = view(image, framing).astype(int)
    for found in (frame(image, framing), frame(frame_at_most(image, framing), whole)):
        assert np.abs(found - expected).max() <= 6
    assert np.abs(frame(image, whole) - expected).max() > 8  # without the crop it differs visibly


def test_a_window_of_the_target_size_is_cropped_contiguously() -> None:
    image, framing = ramp(32, 32), Framing(28, 28, 0.875)
    for found in (frame(image, framing), frame_at_most(image, framing)):
        assert (found == image[2:30, 2:30]).all()
        assert found.flags.c_contiguous


def test_pixels_may_be_read_only() -> None:
    image, framing = ramp(32, 32), Framing(16, 16, 1.0)
    image.flags.writeable = False  # PyTorch would warn, which is an error here
    assert frame(image, framing).shape == frame_at_most(image, framing).shape == (16, 16, 3)


@pytest.mark.parametrize("size", [(17, 16), (5, 3), (1, 1), (900, 2), (16, 16)])
@pytest.mark.parametrize("framing", [Framing(16, 16, 0.875), Framing(12, 20, 0.5)])
def test_images_of_a_few_pixels_are_framed_too(size: tuple[int, int], framing: Framing) -> None:
    image = ramp(*size)
    assert frame(image, framing).shape == (framing.height, framing.width, 3)
    least = frame_at_most(image, framing)
    assert 0 < least.size <= min(image.size, framing.num_pixels * 3)
    assert frame(least, framing).shape == (framing.height, framing.width, 3)


def ramp(width: int, height: int) -> Pixels:
    """A gradient: darkest in one corner, brightest in the opposite one."""
    values = np.linspace(0, 120, height)[:, None] + np.linspace(0, 120, width)
    return np.repeat(values[..., None], 3, axis=2).astype(np.uint8)


def test_training_frames_of_a_photograph_nearly_match_the_inference_view() -> None:
    image, framing = np.asarray(photograph(450, 330)), Framing(224, 224, 0.875)
    assert psnr(frame(image, framing), view(image, framing)) > 30


def test_files_can_be_read_by_path(tmp_path: Path) -> None:
    data = jpeg(photograph(90, 60))
    (tmp_path / "a.jpg").write_bytes(data)
    assert (read_pixels(tmp_path / "a.jpg", 32) == read_pixels(io.BytesIO(data), 32)).all()
    with pytest.raises(UnreadableImageError, match=r"^the file is gone$"):
        read_pixels(tmp_path / "gone.jpg", 32)


@pytest.mark.parametrize("turned", [1, 3, 6])
def test_pixels_are_rotated_upright(turned: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = turned
    data = jpeg(photograph(90, 60), exif=exif)
    assert (read_pixels(io.BytesIO(data), 60) == np.asarray(decode(io.BytesIO(data)))).all()
