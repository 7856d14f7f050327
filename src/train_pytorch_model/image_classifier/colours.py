"""What becomes of pixels that an RGB image of 8 bits cannot hold: 16 bits, and transparency."""

import re
from typing import NamedTuple

import numpy as np
from PIL import Image

MAX_WHITE = 65_535  # of 16 bits

# Pillow's names of raw pixels.
_DEEP_COLOURS = re.compile(r"RGB[AX]?;16")
_FEW_GREYS = re.compile(r"'L;([24])'")


class Colours(NamedTuple):
    """How they are shown."""

    # The value of a 16-bit image that becomes white; larger ones do, too.
    white_level: int = MAX_WHITE
    background: tuple[int, int, int] = (255, 255, 255)  # what is seen through transparent pixels


DEFAULT_COLOURS = Colours()
ON_BLACK = Colours(background=(0, 0, 0))


def has_deep_greys(image: Image.Image) -> bool:
    """Return whether an image is grey, with 16 bits."""
    return image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM"))


def has_deep_colours(image: Image.Image) -> bool:
    """Return whether an image has 16 bits a colour, of which Pillow keeps the higher eight.

    It must not be loaded yet.
    """
    return bool(_DEEP_COLOURS.search(_raw_pixels(image)))


def highest_value_of(image: Image.Image) -> int:
    """Return the highest value that is not transparent of an image with 16 bits a channel.

    It must not be loaded yet.
    """
    if has_deep_colours(image):
        return int(np.asarray(to_rgb(image, ON_BLACK)).max()) * 256 + 255
    values = np.asarray(image)
    return int(values.max(where=~_transparent(values, image), initial=0))


def to_rgb(image: Image.Image, colours: Colours) -> Image.Image:
    """Return the image in RGB, of 8 bits, without transparency.

    If it is loaded already, it has only lost what Pillow does not keep: that colours had 16 bits,
    and greys two or four.
    """
    brightness = MAX_WHITE / colours.white_level if has_deep_colours(image) else 1.0
    transparent_colour = _transparent_colour(image)
    image.load()
    if has_deep_greys(image):
        return _from_deep_greys(image, colours)
    if transparent_colour != image.info.get("transparency"):
        image = image.copy()  # it may be a caller's
        image.info["transparency"] = transparent_colour
    if image.has_transparency_data:  # the colours of transparent pixels are arbitrary
        background = Image.new("RGBA", image.size, (*colours.background, 255))
        seen = _brighten(image.convert("RGBA"), brightness)
        return Image.alpha_composite(background, seen).convert("RGB")
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    return _brighten(rgb, brightness)


def _from_deep_greys(image: Image.Image, colours: Colours) -> Image.Image:
    scale = 255 / colours.white_level
    # `convert` alone would clip everything above 255 to white.
    grey = image.convert("I").point(lambda value: value * scale).convert("RGB")
    if "transparency" in image.info:
        mask = Image.fromarray(_transparent(np.asarray(image), image))
        grey.paste(colours.background, None, mask)
    return grey


def _raw_pixels(image: Image.Image) -> str:
    """Return Pillow's description of the raw pixels; it has none of a loaded image."""
    return str(getattr(image, "tile", [])[:1])


def _transparent_colour(image: Image.Image) -> object:
    """Return the colour, if any, that is transparent among the 8-bit ones that Pillow decodes.

    Pillow keeps it as a PNG has it, in 2, 4 or 16 bits. The image must not be loaded yet.
    """
    colour = image.info.get("transparency")
    if isinstance(colour, tuple) and has_deep_colours(image):
        return tuple(value >> 8 for value in colour)
    few_bits = _FEW_GREYS.search(_raw_pixels(image))
    if isinstance(colour, int) and few_bits:
        return colour * 255 // ((1 << int(few_bits[1])) - 1)
    return colour


def _transparent(values: np.ndarray, image: Image.Image) -> np.ndarray:
    """Return which of the values of a 16-bit grey image are transparent."""
    value = image.info.get("transparency")
    if not isinstance(value, int):
        return np.zeros_like(values, dtype=bool)
    is_transparent: np.ndarray = values == value
    return is_transparent


def _brighten(image: Image.Image, brightness: float) -> Image.Image:
    """Return the image with red, green and blue multiplied."""
    if brightness == 1:
        return image
    colour = [min(255, round(value * brightness)) for value in range(256)]
    alpha = list(range(256)) if image.mode == "RGBA" else []
    return image.point(colour * 3 + alpha)
