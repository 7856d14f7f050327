"""Preprocessing: framing and normalization of an image."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.decoding import limit_size
from train_pytorch_model.image_classifier.spec import Framing


def ramp(width: int, height: int) -> Image.Image:
    """A gradient: red grows to the right and green downwards, from 0 to 255."""
    y, x = np.mgrid[0:height, 0:width]
    red, green = (x + 0.5) * 255 / width, (y + 0.5) * 255 / height
    return Image.fromarray(np.stack([red, green, 0 * x], axis=2).round().astype(np.uint8))


def test_an_image_of_exactly_the_target_size_is_unchanged() -> None:
    image = ramp(20, 10)
    for crop_fraction in (1.0, 0.5):
        assert (Framing(10, 20, crop_fraction).apply(image) == np.asarray(image)).all()


@pytest.mark.parametrize(
    ("size", "framing", "columns", "rows"),
    [
        pytest.param((64, 64), Framing(16, 16, 1.0), (0, 1), (0, 1), id="a whole square"),
        pytest.param(
            (64, 64), Framing(16, 16, 0.5), (0.25, 0.75), (0.25, 0.75), id="the centre half"
        ),
        pytest.param((128, 64), Framing(16, 16, 1.0), (0.25, 0.75), (0, 1), id="a wide image"),
        pytest.param((64, 128), Framing(16, 16, 1.0), (0, 1), (0.25, 0.75), id="a tall image"),
        pytest.param((64, 64), Framing(16, 32, 1.0), (0, 1), (0.25, 0.75), id="a wide window"),
        pytest.param((8, 8), Framing(16, 16, 1.0), (0, 1), (0, 1), id="enlarged"),
    ],
)
def test_the_centre_is_cropped(
    size: tuple[int, int], framing: Framing, columns: tuple[float, float], rows: tuple[float, float]
) -> None:
    pixels = framing.apply(ramp(*size))
    assert pixels.shape == (framing.height, framing.width, 3)
    assert pixels.dtype == np.uint8

    def expected(low: float, high: float, count: int) -> np.ndarray:
        return 255 * (low + (high - low) * (np.arange(count) + 0.5) / count)

    inner = slice(2, -2)  # at the edges, the resampling filter is truncated
    assert pixels[0, inner, 0] == pytest.approx(expected(*columns, framing.width)[inner], abs=3)
    assert pixels[inner, 0, 1] == pytest.approx(expected(*rows, framing.height)[inner], abs=3)


@given(
    st.integers(1, 700),
    st.integers(1, 700),
    st.integers(1, 64),
    st.integers(1, 64),
    st.floats(0.01, 1.0),
)
def test_images_of_every_size_are_framed(
    width: int, height: int, to_height: int, to_width: int, crop_fraction: float
) -> None:
    framing = Framing(to_height, to_width, crop_fraction)
    assert framing.apply(Image.new("RGB", (width, height))).shape == (to_height, to_width, 3)


def test_rounding_does_not_enlarge_the_window_beyond_the_image() -> None:
    # In floating point, 299 times 599/299 is more than 599, and Pillow accepts no box beyond the
    # image.
    assert Framing(299, 299, 1.0).apply(ramp(599, 700)).shape == (299, 299, 3)
    assert Framing(299, 299, 1.0).apply(ramp(700, 599)).shape == (299, 299, 3)


@given(
    st.tuples(st.integers(8, 1024), st.integers(8, 1024)),
    st.floats(0.05, 1),
    st.tuples(st.integers(1, 8000), st.integers(1, 8000)),
)
def test_images_are_decoded_at_no_less_than_the_resolution_of_their_view(
    size: tuple[int, int], crop_fraction: float, image: tuple[int, int]
) -> None:
    framing = Framing(*size, crop_fraction)

    def pixels_per_output_pixel(width: int, height: int) -> float:
        return crop_fraction * min(width / framing.width, height / framing.height)

    decoded = pixels_per_output_pixel(*limit_size(image, framing.short_side))
    assert decoded >= min(1, pixels_per_output_pixel(*image)) * (1 - 1e-9)


def test_the_short_side_follows_from_size_and_crop_fraction() -> None:
    assert Framing(224, 224, 0.875).short_side == 224
    assert Framing(224, 224, 0.5).short_side == 299
    assert Framing(100, 200, 1.0).short_side == 134


def test_normalization_applies_to_pixels_scaled_to_0_to_1() -> None:
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    images = torch.randint(
        0, 256, (2, 3, 4, 5), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    expected = (images.double() / 255 - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(
        3, 1, 1
    )
    assert torch.allclose(Normalize(mean, std)(images).double(), expected, atol=1e-6)


def test_normalization_keeps_the_memory_format_and_its_input() -> None:
    images = torch.full((1, 2, 2, 3), 255, dtype=torch.uint8).permute(0, 3, 1, 2)
    normalized = Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))(images)
    assert normalized.is_contiguous(memory_format=torch.channels_last)
    assert normalized.dtype == torch.float32
    assert (normalized == 1).all()
    assert (images == 255).all()
