"""Transparency and 16 bits become 8 bits of red, green and blue as the eye would have them."""

import io
import struct

import numpy as np
import pytest
from PIL import Image
from tests.image_parts import png_of_samples

from train_pytorch_model.image_classifier.colours import Colours, to_rgb
from train_pytorch_model.image_classifier.decoding import decode, highest_value

BACKGROUND = (10, 200, 30)
COLOURS = Colours(background=BACKGROUND)
GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6


def seen(data: bytes, colours: Colours = COLOURS) -> list[list[int]]:
    """The pixels of the first row."""
    row: list[list[int]] = np.asarray(decode(io.BytesIO(data), colours=colours))[0].tolist()
    return row


@pytest.mark.parametrize("depth", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("fraction", [0, 1 / 3, 1])
def test_a_transparent_grey_shows_the_background(depth: int, fraction: float) -> None:
    white = (1 << depth) - 1
    value = round(white * fraction)
    other = white - value
    data = png_of_samples(
        np.array([[[value], [other], [value]]]), depth, GREY, transparent=struct.pack(">H", value)
    )
    level = round(255 * other / white)
    first, second, third = seen(data)
    assert first == third == list(BACKGROUND)
    assert second == [level] * 3


def test_a_grey_of_16_bits_that_is_nearly_the_transparent_one_is_seen() -> None:
    data = png_of_samples(
        np.array([[[0x1234], [0x1235]]]), 16, GREY, transparent=struct.pack(">H", 0x1234)
    )
    assert seen(data) == [list(BACKGROUND), [18, 18, 18]]


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("colour", [(0, 0, 0), (0x34, 5, 1), (0x1234, 0x5678, 0x9ABC)])
def test_a_transparent_colour_shows_the_background(
    depth: int, colour: tuple[int, int, int]
) -> None:
    white = (1 << depth) - 1
    value = np.array(colour) & white
    data = png_of_samples(
        np.array([[value, white - value]]), depth, RGB, transparent=struct.pack(">HHH", *value)
    )
    first, second = seen(data)
    assert first == list(BACKGROUND)
    assert second == ((white - value) >> (depth - 8)).tolist()


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_each_entry_of_a_palette_has_its_opacity(depth: int) -> None:
    palette = bytes([200, 0, 0] * (1 << depth))
    opacity = bytes([0, 85, 255])
    data = png_of_samples(
        np.array([[[0], [1], [2], [3]]]), depth, PALETTE, palette=palette, transparent=opacity
    )
    assert seen(data, Colours(background=(0, 90, 0))) == [
        [0, 90, 0],
        [67, 60, 0],
        [200, 0, 0],
        [200, 0, 0],
    ]


@pytest.mark.parametrize("depth", [8, 16])
def test_greys_and_colours_with_opacity_show_the_background(depth: int) -> None:
    white = (1 << depth) - 1
    grey = png_of_samples(np.array([[[white, 0], [white, white]]]), depth, GREY_ALPHA)
    assert seen(grey) == [list(BACKGROUND), [255] * 3]
    colour = png_of_samples(np.array([[[white, 0, 0, 0], [white, 0, 0, white]]]), depth, RGB_ALPHA)
    assert seen(colour) == [list(BACKGROUND), [255, 0, 0]]


def test_the_background_of_dark_images_keeps_its_colour() -> None:
    """They are made brighter, what is behind them is not."""
    dark = Colours(0x0FFF, BACKGROUND)
    colour = png_of_samples(np.array([[[0x0800, 0, 0, 0], [0x0800, 0, 0, 0xFFFF]]]), 16, RGB_ALPHA)
    assert seen(colour, dark) == [list(BACKGROUND), [128, 0, 0]]
    grey = png_of_samples(np.array([[[5], [0x0800]]]), 16, GREY, transparent=struct.pack(">H", 5))
    assert seen(grey, dark) == [list(BACKGROUND), [127] * 3]


def test_the_highest_value_is_one_that_is_seen() -> None:
    """No data are often 65535; the image is as bright as its other values."""
    grey = np.array([[[0xFFFF], [0x0FF0]]])
    assert highest_value(io.BytesIO(png_of_samples(grey, 16, GREY))) == 0xFFFF
    no_data = png_of_samples(grey, 16, GREY, transparent=b"\xff\xff")
    assert highest_value(io.BytesIO(no_data)) == 0x0FF0
    colours = np.array([[[0xFFFF] * 3, [0x0FF0] * 3]])
    assert highest_value(io.BytesIO(png_of_samples(colours, 16, RGB))) == 0xFFFF
    no_data = png_of_samples(colours, 16, RGB, transparent=b"\xff" * 6)
    assert highest_value(io.BytesIO(no_data)) == 0x0FFF


def test_an_image_of_a_caller_is_not_changed() -> None:
    data = png_of_samples(np.array([[[5], [7]]]), 4, GREY, transparent=struct.pack(">H", 5))
    image = Image.open(io.BytesIO(data))
    assert to_rgb(image, COLOURS).getpixel((0, 0)) == BACKGROUND
    assert image.info["transparency"] == 5
    assert image.mode == "L"
