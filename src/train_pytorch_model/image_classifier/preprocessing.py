"""What a model sees of an image: size, crop and normalisation, the same wherever it predicts."""

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

    An image of exactly that size is taken as it is. Any other is resized, its proportions kept, until the
    window of `height / crop_fraction` x `width / crop_fraction` is just covered, and its centre cut out.
    `crop_fraction` is in (0, 1]; 0.875 is the usual 224 of 256.
    """

    height: int
    width: int
    crop_fraction: float

    @property
    def short_side(self) -> int:
        """What `decoding` takes, so that images of any proportions are not enlarged after it.

        That is the shorter side of the model's input, and more where the window is wide, or a small part.
        """
        longest = max(self.height, self.width) / self.crop_fraction
        return max(min(self.height, self.width), math.ceil(longest / BOUND))

    @property
    def num_pixels(self) -> int:
        return self.height * self.width

    def apply(self, image: Image.Image) -> np.ndarray[tuple[int, int, int], np.dtype[np.uint8]]:
        """The centre of an RGB image as pixels (height, width, 3), uint8."""
        if image.size == (self.width, self.height):
            return np.asarray(image)
        # One resampling from the source box, instead of a resize and a crop with rounding in between.
        box = self.box(image.width, image.height)
        return np.asarray(image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box))

    def box(self, width: int, height: int) -> tuple[float, float, float, float]:
        """(left, top, right, bottom) of what is seen of an image, in its pixels."""
        scale = self.crop_fraction * min(width / self.width, height / self.height)
        box_width, box_height = self.width * scale, self.height * scale
        # Rounding can make a box that just fits larger by one bit, and Pillow refuses it.
        left, top = max(0.0, (width - box_width) / 2), max(0.0, (height - box_height) / 2)
        return left, top, min(width, left + box_width), min(height, top + box_height)
