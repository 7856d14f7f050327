"""From an image file to the pixels of its place in a batch: what a process apart can do as well.

Besides PyTorch, for resizing, it imports nothing heavy: every training process starts one that imports it.
"""

from dataclasses import dataclass
from pathlib import Path
from random import Random

from train_pytorch_model.augmentation import Augment
from train_pytorch_model.decode_cache import Remember, every_time
from train_pytorch_model.decoder_process import Wanted
from train_pytorch_model.image_classifier.pixels import Decode, Pixels, decoded, reduced, view
from train_pytorch_model.image_classifier.preprocessing import Framing


@dataclass(frozen=True)
class Preparation:
    """What is done to each image of a pass; other processes can do it."""

    framing: Framing
    augment: Augment | None
    """What training does; None for what validation and scoring see."""
    decoded_for: Framing | None = None
    """What decoded images are reduced for, where other passes have larger images than this one."""

    def __call__(self, wanted: Wanted, remember: Remember | None, decode: Decode = decoded) -> Pixels:
        short_side, remember = (self.decoded_for or self.framing).short_side, remember or every_time

        def bounded() -> Pixels:
            return reduced(decode(Path(wanted.file), short_side), short_side)

        if self.augment is None:
            return remember(wanted.number, lambda: view(bounded(), self.framing))
        return self.augment(remember(wanted.number, bounded), Random(wanted.seed))
