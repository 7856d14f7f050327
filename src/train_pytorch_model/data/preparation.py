"""From an image file to its pixels in a batch, in this process or in a reader process.

Apart from PyTorch, for resizing, it imports nothing heavy: on a GPU, every training process starts another
that imports it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from train_pytorch_model.data.augmentation import Augment, RecipeAugment
from train_pytorch_model.data.decode_cache import CachedDecode
from train_pytorch_model.data.decoder_process import ImageRequest
from train_pytorch_model.image_classifier.decoding import BOUND, Colours
from train_pytorch_model.image_classifier.pixels import (
    Decode,
    Pixels,
    decode_pixels,
    frame_at_most,
    reduce,
    view,
    window,
)
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.words.recipe import DecidedRecipe


@dataclass(frozen=True)
class Preparation:
    """How each image of a pass is prepared; picklable, for reader processes."""

    short_side: int
    """The short side for which images are decoded and reduced."""
    kept: Framing | None
    """Framing applied before caching and augmentation; None for the whole image, as random crops need."""
    augment: Augment | None
    """Random augmentation applied after that; None for validation and scoring."""
    colours: Colours
    """As in `Framing`."""

    def __call__(
        self, request: ImageRequest, remember: CachedDecode, decode: Decode = decode_pixels
    ) -> Pixels:
        pixels = remember(request.number, lambda: self._whole(Path(request.file), decode), self._frame)
        return pixels if self.augment is None else self.augment(pixels, Random(request.seed))

    def is_mirrored(self, seed: int) -> bool:
        """Whether an image is mirrored with this seed; only where no crop is drawn from it."""
        return isinstance(self.augment, RecipeAugment) and self.augment.mirrors(Random(seed))

    def _whole(self, file: Path, decode: Decode) -> Pixels:
        return reduce(decode(file, self.short_side, self.colours), self.short_side)

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
    augment = RecipeAugment(recipe, framing.height, framing.width)
    kept: Framing | None = largest
    if recipe.augmentation == "random-resized-crop":  # of the whole image, with pixels to spare
        height, width = (round(BOUND * side) for side in (largest.height, largest.width))
        kept = None if largest.mode == "crop" else replace(largest, height=height, width=width)
    return Preparation(largest.short_side, kept, augment, framing.colours)


def for_inference(framing: Framing) -> Preparation:
    """The preparation for validation and scoring."""
    return Preparation(framing.short_side, framing, None, framing.colours)
