"""A trained classifier without its weights: architecture, categories, framing. Imports no torch."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from PIL import Image

from .answers import Answers, answers_by
from .colours import DEFAULT_COLOURS, Colours
from .decoding import BOUND, Pixels

FramingMode = Literal["crop", "pad", "squash"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Framing:
    """The size of a model's input in pixels, and how an image of any size is brought to it.

    An image of exactly that size is used unchanged. Any other is, by `mode`:
    - `crop`: resized, keeping its aspect ratio, so that it just covers `height / crop_fraction` x
      `width / crop_fraction`, and then centre-cropped; `crop_fraction`, in (0, 1], does not matter
      otherwise;
    - `pad`: resized, keeping its aspect ratio, so that it just fits, and its edges repeated;
    - `squash`: resized to the size, whatever its aspect ratio.

    0.875 is the usual 224 of 256.
    """

    height: int
    width: int
    crop_fraction: float
    mode: FramingMode = "crop"
    colours: Colours = DEFAULT_COLOURS

    @property
    def short_side(self) -> int:
        """The short side to decode with: images of any aspect ratio keep enough pixels to crop."""
        longest = max(self.height, self.width) / self.crop_fraction
        return max(min(self.height, self.width), math.ceil(longest / BOUND))

    @property
    def num_pixels(self) -> int:
        return self.height * self.width

    def apply(self, image: Image.Image) -> Pixels:
        """Return the framed RGB image as pixels (height, width, 3), uint8."""
        if image.size == (self.width, self.height):
            return np.asarray(image)
        if self.mode != "crop":
            height, width = self.inner_size(image.height, image.width)
            resized = image.resize((width, height), Image.Resampling.BILINEAR)
            return self.pad(np.asarray(resized))
        # One resampling from the source box, instead of a resize and a crop with rounding in
        # between.
        size = (self.width, self.height)
        box = self.box(image.width, image.height)
        return np.asarray(image.resize(size, Image.Resampling.BILINEAR, box=box))

    def inner_size(self, height: int, width: int) -> tuple[int, int]:
        """Return (height, width) in the frame of an image of that size that is shown whole."""
        if self.mode == "squash":
            return self.height, self.width
        scale = min(self.height / height, self.width / width)
        return max(1, round(height * scale)), max(1, round(width * scale))

    def pad(self, pixels: np.ndarray) -> Pixels:
        """Centre pixels (h, w, 3), at most of the frame's size, in it, and repeat their edges."""
        height, width, _ = pixels.shape
        top = (self.height - height) // 2
        left = (self.width - width) // 2
        rows = (top, self.height - height - top)
        columns = (left, self.width - width - left)
        return np.pad(pixels, (rows, columns, (0, 0)), mode="edge")

    def seen(self, height: int, width: int) -> float:
        """Return the fraction of an image of that size that the frame shows, in (0, 1]."""
        if self.mode != "crop" or (height, width) == (self.height, self.width):
            return 1.0
        left, top, right, bottom = self.box(width, height)
        return (right - left) * (bottom - top) / (height * width)

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """Return (left, top, right, bottom) of the centre crop, in pixels of the original image."""
        scale = self.crop_fraction * min(width / self.width, height / self.height)
        box_width = self.width * scale
        box_height = self.height * scale
        # Rounding can make a box that just fits one bit too large, which Pillow refuses.
        left = max(0.0, (width - box_width) / 2)
        top = max(0.0, (height - box_height) / 2)
        return left, top, min(width, left + box_width), min(height, top + box_height)


@dataclass(frozen=True)
class ClassifierSpec:
    """A model's architecture, categories and input, as plain values that a file can hold."""

    architecture: str
    option: bool
    categories: tuple[str, ...]  # class index → name
    framing: Framing
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    # Of each category, the probability from which on it is answered, if images have any number of
    # categories; None if they have one.
    thresholds: tuple[float, ...] | None = None

    @property
    def answers(self) -> Answers:
        """Return how the model answers."""
        return answers_by(self.thresholds)

    def as_mapping(self) -> dict[str, Any]:
        """Return plain values, which `from_mapping` reads."""
        return {
            "architecture": self.architecture,
            "option": self.option,
            "categories": list(self.categories),
            "height": self.framing.height,
            "width": self.framing.width,
            "crop_fraction": self.framing.crop_fraction,
            "framing": self.framing.mode,
            "mean": list(self.mean),
            "std": list(self.std),
            "white_level": self.framing.colours.white_level,
            "background": list(self.framing.colours.background),
            **self.answers.entries(),
        }

    @classmethod
    def from_mapping(cls, values: dict[str, Any]) -> "ClassifierSpec":
        """Return the spec with the values of `as_mapping`."""
        framing = Framing(
            height=values["height"],
            width=values["width"],
            crop_fraction=values["crop_fraction"],
            mode=values["framing"],
            colours=Colours(values["white_level"], tuple(values["background"])),
        )
        return cls(
            architecture=values["architecture"],
            option=values["option"],
            categories=tuple(values["categories"]),
            framing=framing,
            mean=tuple(values["mean"]),
            std=tuple(values["std"]),
            thresholds=tuple(values["thresholds"]) if "thresholds" in values else None,
        )
