"""Random crops and mirroring of training images."""

import math
from dataclasses import dataclass
from random import Random

import numpy as np

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.data.framing import frame
from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.image_classifier.pixels import resize
from train_pytorch_model.image_classifier.spec import Framing

# Inception's crop (Szegedy et al. 2015), with the aspect ratios that have become standard.
ASPECTS = (3 / 4, 4 / 3)
ATTEMPTS = 10
PADDING = 1 / 8  # 4 px of 32, as in He et al. 2015, section 4.2


@dataclass(frozen=True)
class Augment:
    """A recipe's augmentation: a pure function of an image and of a random stream.

    The image itself stays as it is.
    """

    recipe: DecidedRecipe
    height: int
    width: int

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        cropped = self._crop(pixels, random)
        return mirror(cropped) if self.mirrors(random) else cropped

    def _crop(self, pixels: Pixels, random: Random) -> Pixels:
        if self.recipe.augmentation == "random-resized-crop":
            area = self.recipe.crop_area
            return random_resized_crop(pixels, self.height, self.width, area, random)
        framed = frame(pixels, Framing(self.height, self.width, 1.0))
        if self.recipe.augmentation == "padded-crop":
            return padded_crop(framed, random)
        return framed

    def mirrors(self, random: Random) -> bool:
        """Return whether an image is mirrored, by a stream from which its crop has been drawn."""
        return self.recipe.horizontal_flip and random.random() < 0.5


def random_resized_crop(
    pixels: Pixels, height: int, width: int, min_area: float, random: Random
) -> Pixels:
    """Return a random window, resized.

    It has at least the fraction `min_area` of the image, and 3/4 to 4/3 of the target's aspect
    ratio.
    """
    part = random_window(*pixels.shape[:2], width / height, min_area, random)
    if part is None:  # a panorama: no window fits, so take the largest centred one
        return frame(pixels, Framing(height, width, 1.0))
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(pixels[part], order="C"), height, width)


def random_window(
    height: int, width: int, aspect: float, min_area: float, random: Random
) -> tuple[slice, slice] | None:
    """Return a random part's rows and columns; None if none fits.

    `aspect` is width / height, `min_area` a fraction of the image.
    """
    low, high = map(math.log, ASPECTS)
    for _ in range(ATTEMPTS):
        area = height * width * random.uniform(min_area, 1)
        ratio = math.exp(random.uniform(low, high)) * aspect
        rows = round(math.sqrt(area / ratio))
        columns = round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top = random.randint(0, height - rows)
            left = random.randint(0, width - columns)
            return slice(top, top + rows), slice(left, left + columns)
    return None


def mirror(pixels: Pixels) -> Pixels:
    """Return the image flipped left to right."""
    flipped = np.empty_like(pixels)
    for channel in range(3):  # all at once take NumPy eight times as long
        flipped[..., channel] = pixels[:, ::-1, channel]
    return flipped


def padded_crop(pixels: Pixels, random: Random) -> Pixels:
    """Return the image (H, W, 3) shifted by up to an eighth of its size, padded by reflection."""
    height, width, _ = pixels.shape
    pad_y = round(height * PADDING)
    pad_x = round(width * PADDING)
    padded = np.pad(pixels, ((pad_y, pad_y), (pad_x, pad_x), (0, 0)), mode="reflect")
    top = random.randint(0, 2 * pad_y)
    left = random.randint(0, 2 * pad_x)
    return padded[top : top + height, left : left + width]
