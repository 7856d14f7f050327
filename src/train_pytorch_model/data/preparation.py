"""From an image file to its pixels in a batch, in this process or in a reader process.

Apart from PyTorch, for resizing, it imports nothing heavy: on a GPU, every training process starts
another that imports it.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.data.augment import Augment
from train_pytorch_model.data.framing import frame_at_most, window
from train_pytorch_model.data.requests import CachedDecode, ImageRequest
from train_pytorch_model.image_classifier.decoding import BOUND, Colours
from train_pytorch_model.image_classifier.pixels import Decode, Pixels, decode_pixels, reduce, view
from train_pytorch_model.image_classifier.spec import Framing


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
