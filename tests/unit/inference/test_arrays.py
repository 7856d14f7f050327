"""Images as arrays of numbers."""

from typing import Any

import numpy as np
import pytest
from tests.painting import paint

from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.inference.arrays import NotAnImageError, image_of

PIXELS = np.asarray(paint("red", 1, (5, 4)))  # (4, 5, 3)
GREY = PIXELS[..., 0]


@pytest.mark.parametrize(
    "array",
    [
        PIXELS,
        PIXELS.transpose(2, 0, 1),
        PIXELS / 255,
        (PIXELS / 255).astype(np.float32),
        PIXELS.astype(np.int64),
        PIXELS.astype(np.uint16) * 257,
        PIXELS[:, ::-1][:, ::-1],
    ],
    ids=["uint8", "channels first", "float64", "float32", "int64", "uint16", "a view"],
)
def test_the_same_pixels_are_the_same_image(array: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(image_of(array, Colours())), PIXELS)


@pytest.mark.parametrize("array", [GREY, GREY[..., None], GREY[None], GREY / 255])
def test_grey_pixels_need_no_channel(array: np.ndarray) -> None:
    image = image_of(array, Colours())
    assert image.mode == "L"
    np.testing.assert_array_equal(np.asarray(image), GREY)


def test_a_mask_is_black_and_white() -> None:
    assert np.asarray(image_of(np.eye(3, dtype=bool), Colours())).tolist()[0] == [255, 0, 0]


def test_sixteen_bits_are_scaled_as_those_of_a_file() -> None:
    found = image_of(np.array([[0, 2048, 4095, 65535]], np.uint16), Colours(white_level=4095))
    assert np.asarray(found).tolist() == [[0, 127, 255, 255]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (PIXELS.astype(float), "of float64 with values from .*: expected 0 to 1"),
        (PIXELS / 255 - 0.5, "expected 0 to 1, before they are normalized, or uint8"),
        (np.full((2, 2), np.nan), "with values from nan to nan"),
        (PIXELS.astype(np.int16) - 300, "expected 0 to 255, or uint16 for 16 bits"),
        (PIXELS.astype(np.uint16), "black in 16 bits"),
        (
            np.zeros((10, 8, 8)),
            r"\(10, 8, 8\) .* \(images, …\) for several, `array\[..., None\]` if they are grey",
        ),
        (np.zeros(4), r"an array of shape \(4,\) of float64: expected \(height, width\)"),
        (np.zeros((0, 4, 3)), "it has no pixels"),
        (PIXELS.astype(complex), "expected numbers"),
    ],
)
def test_what_could_be_taken_for_another_image_is_refused(array: Any, message: str) -> None:
    with pytest.raises(NotAnImageError, match=message):
        image_of(array, Colours())
