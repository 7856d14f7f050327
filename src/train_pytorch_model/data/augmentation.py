"""Training augmentation: a pure function of an image and a random stream."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from train_pytorch_model.image_classifier.pixels import Pixels, frame, resize
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.words.recipe import DecidedRecipe

Augment = Callable[[Pixels, Random], Pixels]
"""An image → an image of the training size. Does not modify its input."""

# Inception's crop (Szegedy et al. 2015), with the aspect ratios that have become standard.
ASPECTS = (3 / 4, 4 / 3)
ATTEMPTS = 10
PADDING = 1 / 8  # 4 px of 32, as in He et al. 2015, section 4.2


@dataclass(frozen=True)
class RecipeAugment:
    """The augmentation of a recipe, as a picklable `Augment`.

    Random resized crops are taken from an image of any size; everything else works on the framed image.
    """

    recipe: DecidedRecipe
    height: int
    width: int

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        cropped = self._crop(pixels, random)
        return mirror(cropped) if self.mirrors(random) else cropped

    def mirrors(self, random: Random) -> bool:
        """Whether an image is mirrored, by a stream from which its crop has been drawn."""
        return self.recipe.horizontal_flip and random.random() < 0.5

    def _crop(self, pixels: Pixels, random: Random) -> Pixels:
        if self.recipe.augmentation == "random-resized-crop":
            return random_resized_crop(pixels, self.height, self.width, self.recipe.crop_area, random)
        resized = frame(pixels, Framing(self.height, self.width, 1.0))
        return padded_crop(resized, random) if self.recipe.augmentation == "padded-crop" else resized


def random_resized_crop(pixels: Pixels, height: int, width: int, min_area: float, random: Random) -> Pixels:
    """A random window, resized: at least `min_area`, and 3/4 to 4/3 of the target's aspect ratio."""
    window = random_window(*pixels.shape[:2], width / height, min_area, random)
    if window is None:  # a panorama: no window fits, so take the largest centred one
        return frame(pixels, Framing(height, width, 1.0))
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(pixels[window], order="C"), height, width)


def random_window(
    height: int, width: int, aspect: float, min_area: float, random: Random
) -> tuple[slice, slice] | None:
    """Rows and columns of a random window of an image; None if `ATTEMPTS` draws do not fit into it.

    `min_area` is a fraction of the image's area, `aspect` the target's width / height.
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


def mirror(pixels: Pixels) -> Pixels:
    """The image flipped left to right."""
    flipped = np.empty_like(pixels)
    for channel in range(3):  # all at once take NumPy eight times as long
        flipped[..., channel] = pixels[:, ::-1, channel]
    return flipped


def padded_crop(pixels: Pixels, random: Random) -> Pixels:
    """The image (H, W, 3) shifted by up to an eighth of its size, with reflection padding."""
    height, width, _ = pixels.shape
    pad_y, pad_x = round(height * PADDING), round(width * PADDING)
    padded = np.pad(pixels, ((pad_y, pad_y), (pad_x, pad_x), (0, 0)), mode="reflect")
    top, left = random.randint(0, 2 * pad_y), random.randint(0, 2 * pad_x)
    return padded[top : top + height, left : left + width]
