"""What training does to an image before the network sees it, as a pure function of a random stream."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from train_pytorch_model.image_classifier.pixels import Pixels, framed, resize
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.recipe import Recipe

Augment = Callable[[Pixels, Random], Pixels]
"""An image → one of the training size. The pixels that come in stay as they are."""

# Inception's crop (Szegedy et al. 2015), with the aspects that everybody has used since.
ASPECTS = (3 / 4, 4 / 3)
ATTEMPTS = 10
PADDING = 1 / 8  # 4 px of 32, as in He et al. 2015, section 4.2


@dataclass(frozen=True)
class RecipeAugment:
    """What a decided recipe asks for, as an `Augment` that other processes can have.

    Random crops are taken of an image of any size, all else is done to what a model sees of it.
    """

    recipe: Recipe
    height: int
    width: int

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        cropped = self._cropped(pixels, random)
        is_mirrored = self.recipe.horizontal_flip and random.random() < 0.5
        return mirrored(cropped) if is_mirrored else cropped

    def _cropped(self, pixels: Pixels, random: Random) -> Pixels:
        if self.recipe.augmentation == "random-resized-crop":
            return random_resized_crop(pixels, self.height, self.width, self.recipe.crop_area, random)
        resized = framed(pixels, Framing(self.height, self.width, 1.0))
        return padded_crop(resized, random) if self.recipe.augmentation == "padded-crop" else resized


def random_resized_crop(pixels: Pixels, height: int, width: int, min_area: float, random: Random) -> Pixels:
    """A window of `min_area` or more and an aspect of 3/4 to 4/3 of the target's, resized to it."""
    window = random_window(*pixels.shape[:2], width / height, min_area, random)
    if window is None:  # a panorama: no window fits, the largest centred one does
        return framed(pixels, Framing(height, width, 1.0))
    # A copy in one piece: PyTorch would make it by threads of its own.
    return resize(np.array(pixels[window], order="C"), height, width)


def random_window(
    height: int, width: int, aspect: float, min_area: float, random: Random
) -> tuple[slice, slice] | None:
    """Rows and columns of a random part of an image; None where no part of that aspect was found.

    `min_area` is a share of the image's, as `aspect` is of width to height.
    """
    low, high = math.log(ASPECTS[0]), math.log(ASPECTS[1])
    for _ in range(ATTEMPTS):
        area = height * width * random.uniform(min_area, 1)
        ratio = math.exp(random.uniform(low, high)) * aspect
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top, left = random.randint(0, height - rows), random.randint(0, width - columns)
            return slice(top, top + rows), slice(left, left + columns)
    return None


def mirrored(pixels: Pixels) -> Pixels:
    """Left and right exchanged."""
    flipped = np.empty_like(pixels)
    for channel in range(3):  # at once, NumPy takes eight times as long
        flipped[..., channel] = pixels[:, ::-1, channel]
    return flipped


def padded_crop(pixels: Pixels, random: Random) -> Pixels:
    """The image (H, W, 3) moved by up to an eighth, the gap filled with its reflection."""
    height, width, _ = pixels.shape
    pad_y, pad_x = round(height * PADDING), round(width * PADDING)
    padded = np.pad(pixels, ((pad_y, pad_y), (pad_x, pad_x), (0, 0)), mode="reflect")
    top, left = random.randint(0, 2 * pad_y), random.randint(0, 2 * pad_x)
    return padded[top : top + height, left : left + width]
