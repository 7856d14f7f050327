"""A model's view of an image: size, crop and normalization, the same wherever it predicts."""

import math
from dataclasses import dataclass

import numpy as np
from PIL import Image

from .decoding import BOUND

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Framing:
    """The size of a model's input in pixels, and how an image of any size is brought to it.

    An image of exactly that size is used unchanged. Any other is resized, keeping its aspect ratio, so that
    it just covers `height / crop_fraction` x `width / crop_fraction`, and then centre-cropped.
    `crop_fraction` is in (0, 1]; 0.875 is the usual 224 of 256.
    """

    height: int
    width: int
    crop_fraction: float

    @property
    def short_side(self) -> int:
        """The `short_side` to decode with: images of any aspect ratio then keep enough pixels for the crop.

        It is the shorter side of the model's input, or more if that is elongated or `crop_fraction` is small.
        """
        longest = max(self.height, self.width) / self.crop_fraction
        return max(min(self.height, self.width), math.ceil(longest / BOUND))

    @property
    def num_pixels(self) -> int:
        return self.height * self.width

    def apply(self, image: Image.Image) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
        """The centre crop of an RGB image as pixels (height, width, 3), uint8."""
        if image.size == (self.width, self.height):
            return np.asarray(image)
        # One resampling from the source box, instead of a resize and a crop with rounding in between.
        box = self.box(image.width, image.height)
        return np.asarray(image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box))

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) of the centre crop, in pixels of the original image."""
        scale = self.crop_fraction * min(width / self.width, height / self.height)
        box_width, box_height = self.width * scale, self.height * scale
        # Rounding can make a box that just fits one bit too large, which Pillow refuses.
        left, top = max(0.0, (width - box_width) / 2), max(0.0, (height - box_height) / 2)
        return left, top, min(width, left + box_width), min(height, top + box_height)
