"""From an image file to its pixels in a batch, in this process or in a reader process.

Apart from PyTorch, for resizing, it imports nothing heavy: on a GPU, every training process starts
another that imports it.
"""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from train_pytorch_model.data.cache import CachedDecode
from train_pytorch_model.data.decoders import ImageRequest
from train_pytorch_model.image_classifier.decoding import BOUND, Colours
from train_pytorch_model.image_classifier.pixels import (
    Decode,
    Pixels,
    decode_pixels,
    reduce,
    resize,
    view,
)
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.words.settings import DecidedRecipe

# Inception's crop (Szegedy et al. 2015), with the aspect ratios that have become standard.
ASPECTS = (3 / 4, 4 / 3)
ATTEMPTS = 10
PADDING = 1 / 8  # 4 px of 32, as in He et al. 2015, section 4.2


def frame(pixels: Pixels, framing: Framing) -> Pixels:
    """The framed image, as training sees it: the `view` in a fifth of its time, cropped to whole
    pixels.
    """
    if framing.mode != "crop" and pixels.shape[:2] != (framing.height, framing.width):
        return framing.pad(resize(pixels, *framing.inner_size(*pixels.shape[:2])))
    seen = pixels[window(*pixels.shape[:2], framing)]
    if seen.shape[:2] == (framing.height, framing.width):
        return np.ascontiguousarray(seen)
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(seen, order="C"), framing.height, framing.width)


def frame_at_most(pixels: Pixels, framing: Framing) -> Pixels:
    """`frame`, or its window without resizing if that has fewer pixels: it shows as much."""
    if framing.mode == "crop":
        seen = pixels[window(*pixels.shape[:2], framing)]
        if seen.shape[0] * seen.shape[1] < framing.num_pixels:
            return np.ascontiguousarray(seen)
    return frame(pixels, framing)


def window(height: int, width: int, framing: Framing) -> tuple[slice, slice]:
    """Rows and columns that training sees of an image of that size; at least one of each."""
    if (height, width) == (framing.height, framing.width):
        return slice(0, height), slice(0, width)
    left, top, right, bottom = map(round, framing.box(width, height))
    return slice(top, max(top + 1, bottom)), slice(left, max(left + 1, right))


@dataclass(frozen=True)
class Augment:
    """A recipe's augmentation: a pure function of an image, left as it is, and of a random stream."""

    recipe: DecidedRecipe
    height: int
    width: int

    def __call__(self, pixels: Pixels, random: Random) -> Pixels:
        if self.recipe.augmentation == "random-resized-crop":
            cropped = random_resized_crop(
                pixels, self.height, self.width, self.recipe.crop_area, random
            )
        else:
            cropped = frame(pixels, Framing(self.height, self.width, 1.0))
            if self.recipe.augmentation == "padded-crop":
                cropped = padded_crop(cropped, random)
        return mirror(cropped) if self.mirrors(random) else cropped

    def mirrors(self, random: Random) -> bool:
        """Whether an image is mirrored, by a stream from which its crop has been drawn."""
        return self.recipe.horizontal_flip and random.random() < 0.5


def random_resized_crop(
    pixels: Pixels, height: int, width: int, min_area: float, random: Random
) -> Pixels:
    """A random window, resized: at least `min_area`, and 3/4 to 4/3 of the target's aspect ratio."""
    part = random_window(*pixels.shape[:2], width / height, min_area, random)
    if part is None:  # a panorama: no window fits, so take the largest centred one
        return frame(pixels, Framing(height, width, 1.0))
    # A contiguous copy: PyTorch would make it with threads of its own.
    return resize(np.array(pixels[part], order="C"), height, width)


def random_window(
    height: int, width: int, aspect: float, min_area: float, random: Random
) -> tuple[slice, slice] | None:
    """A random part's rows and columns; `aspect` is width / height, `min_area` a share; None if
    none fits.
    """
    low, high = map(math.log, ASPECTS)
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


@dataclass(frozen=True)
class Preparation:
    """How each image of a pass is prepared; picklable, for reader processes."""

    short_side: int  # the short side for which images are decoded and reduced
    kept: (
        Framing | None
    )  # applied before caching and augmenting; None for all of an image, for random crops
    augment: (
        Augment | None
    )  # random augmentation applied after that; None for validation and scoring
    colours: Colours

    def __call__(
        self, request: ImageRequest, cached: CachedDecode, decode: Decode = decode_pixels
    ) -> Pixels:
        def whole() -> Pixels:
            return reduce(
                decode(Path(request.file), self.short_side, self.colours), self.short_side
            )

        pixels = cached(request.number, whole, self._frame)
        return pixels if self.augment is None else self.augment(pixels, Random(request.seed))

    def is_mirrored(self, seed: int) -> bool:
        """Whether an image is mirrored with this seed; only where no crop is drawn from it."""
        return self.augment is not None and self.augment.mirrors(Random(seed))

    def _frame(self, pixels: Pixels) -> Pixels:
        if self.kept is None:
            return pixels
        return view(pixels, self.kept) if self.augment is None else frame_at_most(pixels, self.kept)

    def num_kept(self, height: int, width: int) -> int:
        """Pixels to cache of a decoded image of that size."""
        if self.kept is None:
            return height * width
        if self.augment is None or self.kept.mode != "crop":
            return self.kept.num_pixels
        rows, columns = window(height, width, self.kept)
        seen: int = (rows.stop - rows.start) * (columns.stop - columns.start)
        return min(self.kept.num_pixels, seen)


def for_training(recipe: DecidedRecipe, framing: Framing, largest: Framing) -> Preparation:
    """The preparation by a recipe for an epoch at `framing`; `largest` is that of all epochs."""
    kept: Framing | None = largest
    if recipe.augmentation == "random-resized-crop":  # of the whole image, with pixels to spare
        height, width = (round(BOUND * side) for side in (largest.height, largest.width))
        kept = None if largest.mode == "crop" else replace(largest, height=height, width=width)
    augment = Augment(recipe, framing.height, framing.width)
    return Preparation(largest.short_side, kept, augment, framing.colours)


def for_inference(framing: Framing) -> Preparation:
    """The preparation for validation and scoring."""
    return Preparation(framing.short_side, framing, None, framing.colours)
