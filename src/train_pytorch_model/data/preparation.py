"""From an image file to the pixels of its place in a batch: what a process apart can do as well.

Besides PyTorch, for resizing, it imports nothing heavy: every training process starts one that imports it.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from train_pytorch_model.data.augmentation import Augment, RecipeAugment
from train_pytorch_model.data.decode_cache import Remember, every_time
from train_pytorch_model.data.decoder_process import Wanted
from train_pytorch_model.image_classifier.pixels import (
    Decode,
    Pixels,
    decoded,
    framed_at_most,
    reduced,
    view,
    window,
)
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.recipe import Recipe


@dataclass(frozen=True)
class Preparation:
    """What is done to each image of a pass; other processes can do it."""

    short_side: int
    """Decoded images are reduced for it (`reduced`)."""
    kept: Framing | None
    """What is kept of an image, if any are: its view, or less; None for all of it, as random crops need."""
    augment: Augment | None
    """What training does to that, each time anew; None for validation and scoring."""

    def __call__(self, wanted: Wanted, remember: Remember | None, decode: Decode = decoded) -> Pixels:
        pixels = (remember or every_time)(wanted.number, lambda: self._first(Path(wanted.file), decode))
        return pixels if self.augment is None else self.augment(pixels, Random(wanted.seed))

    def _first(self, file: Path, decode: Decode) -> Pixels:
        pixels = reduced(decode(file, self.short_side), self.short_side)
        if self.kept is None:
            return pixels
        return view(pixels, self.kept) if self.augment is None else framed_at_most(pixels, self.kept)

    def num_kept(self, height: int, width: int) -> int:
        """Pixels that are kept of a decoded image of that size."""
        if self.kept is None:
            return height * width
        if self.augment is None:
            return self.kept.num_pixels
        rows, columns = window(height, width, self.kept)
        seen: int = (rows.stop - rows.start) * (columns.stop - columns.start)
        return min(self.kept.num_pixels, seen)


def for_training(recipe: Recipe, framing: Framing, largest: Framing) -> Preparation:
    """What a decided recipe does to images of an epoch; those of some other epoch are as `largest`."""
    needs_all = recipe.augmentation == "random-resized-crop"
    augment = RecipeAugment(recipe, framing.height, framing.width)
    return Preparation(largest.short_side, None if needs_all else largest, augment)


def for_inference(framing: Framing) -> Preparation:
    """What validation and scoring do."""
    return Preparation(framing.short_side, framing, None)
