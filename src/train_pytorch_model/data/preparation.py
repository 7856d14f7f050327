"""From an image file to its pixels in a batch, in this process or in a reader process.

Apart from PyTorch, for resizing, it imports nothing heavy: on a GPU, every training process starts
another that imports it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.data.augment import Augment
from train_pytorch_model.data.cache import DecodeCache
from train_pytorch_model.data.framing import frame_at_most, window
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.decoding import BOUND, Pixels
from train_pytorch_model.image_classifier.pixels import Decode, decode_pixels, reduce, view
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.quality.perceptual_hash import perceptual_hash


@dataclass(frozen=True)
class Preparation:
    """How each image of a pass is prepared; picklable, for reader processes."""

    short_side: int  # the short side for which images are decoded and reduced
    # Applied before caching and augmenting; None for all of an image, for random crops.
    cached_framing: Framing | None
    # Random augmentation, applied after that; None for validation and scoring.
    augment: Augment | None
    colours: Colours

    def __call__(
        self, request: ImageRequest, cache: DecodeCache | None, decode: Decode = decode_pixels
    ) -> Pixels:
        """Return an image's pixels, possibly read-only. Raises what `decode` raises."""
        pixels = None if cache is None else cache.get(request.number)
        if pixels is None:
            decoded = decode(Path(request.file), self.short_side, self.colours)
            whole = reduce(decoded, self.short_side)
            pixels = self._frame(whole)
            if cache is not None:
                hash_once(cache.hashes, request.number, whole)
                cache.put(request.number, pixels)
        if self.augment is None:
            return pixels
        return self.augment(pixels, Random(request.seed))

    def is_mirrored(self, seed: int) -> bool:
        """Return whether an image is mirrored with this seed, if no crop is drawn from it."""
        return self.augment is not None and self.augment.mirrors(Random(seed))

    def _frame(self, pixels: Pixels) -> Pixels:
        """Return what is cached of an image."""
        if self.cached_framing is None:
            return pixels
        if self.augment is None:
            return view(pixels, self.cached_framing)
        return frame_at_most(pixels, self.cached_framing)

    def num_cached_pixels(self, height: int, width: int) -> int:
        """Return how many pixels are cached of a decoded image of that size."""
        framing = self.cached_framing
        if framing is None:
            return height * width
        if self.augment is None or framing.mode != "crop":
            return framing.num_pixels
        rows, columns = window(height, width, framing)
        window_pixels: int = (rows.stop - rows.start) * (columns.stop - columns.start)
        return min(framing.num_pixels, window_pixels)


def hash_once(hashes: np.ndarray, number: int, whole: Pixels) -> None:
    """Record the perceptual hash of a whole image, unless it is known, or hashes are not wanted."""
    if len(hashes) and not hashes[number].any():
        hashes[number] = perceptual_hash(whole)


def for_training(recipe: DecidedRecipe, framing: Framing, largest: Framing) -> Preparation:
    """Return a recipe's preparation for an epoch at `framing`; `largest` is that of all epochs."""
    cached_framing: Framing | None = largest
    if recipe.augmentation == "random-resized-crop":
        # Crops are drawn from the whole image, with pixels to spare.
        height = round(BOUND * largest.height)
        width = round(BOUND * largest.width)
        is_whole = largest.mode == "crop"
        cached_framing = None if is_whole else replace(largest, height=height, width=width)
    augment = Augment(recipe, framing.height, framing.width)
    return Preparation(largest.short_side, cached_framing, augment, framing.colours)


def for_inference(framing: Framing) -> Preparation:
    """Return the preparation for validation and scoring."""
    return Preparation(framing.short_side, framing, None, framing.colours)
