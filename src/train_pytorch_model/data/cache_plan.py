"""How much of the memory caches decoded images or features, decided before training."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import (
    UnreadableImageError,
    limit_size,
    read_size,
)
from train_pytorch_model.machine.memory import available_memory
from train_pytorch_model.quality.perceptual_hash import MAX_HASHED, NUM_BYTES

if TYPE_CHECKING:
    from train_pytorch_model.data.preparation import Preparation
    from train_pytorch_model.formats.image_directory import ImageDirectory


MEMORY_FRACTION = 1 / 4  # of the available memory, for all processes of a machine together
MIN_FRACTION = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all


@dataclass(frozen=True)
class Views:
    """The views of images whose features are computed once and kept (`features`)."""

    per_image: int  # 2 where training images may be mirrored, otherwise 1
    width: int  # features of a view
    itemsize: int  # bytes of a feature

    @property
    def num_bytes(self) -> int:
        """Of an image: its features, and whether each view is known."""
        return self.per_image * (self.width * self.itemsize + 1)


@dataclass(frozen=True)
class CachePlan:
    """How many bytes of decoded images are cached."""

    num_training: int  # rows of the dataset, some of which may be left out
    num_validation: int
    budget: int  # bytes, for all processes of the machine; 0 without a cache
    summary: str
    readers: int = 0  # reader processes per training process; 0 if it reads images itself
    views: Views | None = None

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation

    @property
    def is_hashed(self) -> bool:
        """Whether the file has a perceptual hash of each image, cached or not."""
        return self.num_images <= MAX_HASHED

    @property
    def features(self) -> range:
        """Where in the file features are."""
        start = (16 + NUM_BYTES * self.is_hashed) * self.num_images
        return range(start, start + (self.views.num_bytes * self.num_images if self.views else 0))

    @property
    def num_bytes(self) -> int:
        return self.features.stop + self.budget


def plan_cache(
    training: "tuple[ImageDirectory, Preparation]",
    validation: "tuple[ImageDirectory, Preparation]",
    epochs: int,
    readers: int = 0,
    views: Views | None = None,
) -> CachePlan:
    """Decide what is cached: features of `views` if all fit, then images, unless memory holds too
    few.
    """
    both = training, validation
    num_images = sum(len(images) for images, _ in both)
    wanted = sum(len(images) * _mean_bytes(images, prepared) for images, prepared in both)
    num_training, num_validation = (int(images.rows[-1]) + 1 for images, _ in both)
    off = CachePlan(num_training, num_validation, 0, "", readers)
    if epochs == 1:
        return replace(off, summary="each image once: there is one epoch")
    budget = int(available_memory() * MEMORY_FRACTION)
    if views and (num_bytes := views.num_bytes * off.num_images) <= budget:
        off, budget = replace(off, views=views), budget - num_bytes
        if views.per_image == 1:
            return replace(off, summary="each image once: its features are kept")
    fraction = budget / max(wanted, 1)
    if fraction < MIN_FRACTION:
        reason = (
            f"{memory_text(budget)} of memory would hold less than {MIN_FRACTION:.0%} of the images"
        )
        return replace(off, summary=f"in every epoch: {reason}")
    which = (
        f"about {int(num_images * fraction):,} of {num_images:,} images"
        if fraction < 1
        else "each image"
    )
    summary = f"{which} once, then cached ({memory_text(min(budget, wanted))} of memory)"
    return replace(off, budget=budget, summary=summary)


def _mean_bytes(images: "ImageDirectory", prepared: "Preparation") -> int:
    """Mean bytes to cache per image, estimated from a sample unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in evenly_spaced(len(images), SAMPLED).tolist():
        with suppress(UnreadableImageError):
            height, width = limit_size(read_size(images.path(index)), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def memory_text(num_bytes: int) -> str:
    """A number of bytes for people, in GiB or MiB."""
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
