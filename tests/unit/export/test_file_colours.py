"""An exported program shows transparent and dark pixels of a PNG as the served model does."""

import io
import struct

import numpy as np
import pytest
from tests.image_parts import png_of_samples
from tests.onnx_sessions import framing_alone

from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.pixels import read_pixels
from train_pytorch_model.image_classifier.spec import Framing

BACKGROUND = (10, 200, 30)
GREY, RGB = 0, 2
SIDE = 8  # of the squares of one colour


def assert_as_served(file: bytes, colours: Colours, tolerance: int) -> np.ndarray:
    """Return the program's pixels, which are the served model's."""
    framing = Framing(2 * SIDE, 3 * SIDE, 1.0, "squash", colours=colours)
    (framed,) = framing_alone(framing, "file").run(None, {"file": np.frombuffer(file, np.uint8)})
    pixels: np.ndarray = framed[0].transpose(1, 2, 0).astype(int)
    served = read_pixels(io.BytesIO(file), framing.short_side, colours)
    assert np.abs(pixels - served).max() <= tolerance
    return pixels[::SIDE, ::SIDE]


def squares(colours: list[list[tuple[int, ...]]]) -> np.ndarray:
    """The samples of two rows of three squares."""
    return np.array(colours).repeat(SIDE, 0).repeat(SIDE, 1)


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
def test_a_transparent_grey_shows_the_background(depth: int) -> None:
    white = (1 << depth) - 1
    value = white // 3
    samples = squares([[(value,), (white,), (value,)], [(white,), (value,), (white,)]])
    file = png_of_samples(samples, depth, GREY, transparent=struct.pack(">H", value))
    pixels = assert_as_served(file, Colours(background=BACKGROUND), 0)
    assert tuple(pixels[0, 0]) == tuple(pixels[1, 1]) == BACKGROUND
    assert tuple(pixels[0, 1]) == (255, 255, 255)


@pytest.mark.parametrize("depth", [8, 16])
def test_a_transparent_colour_shows_the_background(depth: int) -> None:
    white = (1 << depth) - 1
    value = (white, 0x34, 0x1256 & white)
    samples = squares([[value, (0, 0, 0), value], [(white, 0x34, 0), value, (0, 0, 0)]])
    file = png_of_samples(samples, depth, RGB, transparent=struct.pack(">HHH", *value))
    pixels = assert_as_served(file, Colours(background=BACKGROUND), 0)
    assert tuple(pixels[0, 0]) == tuple(pixels[1, 1]) == BACKGROUND
    assert tuple(pixels[0, 1]) == (0, 0, 0)


@pytest.mark.parametrize("colour", [GREY, RGB])
def test_an_image_of_12_bits_is_as_bright_as_it_is_meant_to_be(colour: int) -> None:
    channels = 1 if colour == GREY else 3
    samples = squares(
        [
            [(0,) * channels, (800,) * channels, (1600,) * channels],
            [(2400,) * channels, (3200,) * channels, (4000,) * channels],
        ]
    )
    file = png_of_samples(samples, 16, colour)
    # The program's decoder keeps the higher eight bits: steps of 16 of the grey levels.
    pixels = assert_as_served(file, Colours(white_level=0x0FFF), 16)
    assert pixels.max() > 230
