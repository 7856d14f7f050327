"""How much of the memory caches decoded images or features, decided before training."""

from contextlib import suppress
from dataclasses import replace

import numpy as np

from train_pytorch_model.data.cache_plan import CachePlan, Views
from train_pytorch_model.data.preparation import Preparation
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import (
    UnreadableImageError,
    limit_size,
    read_size,
)
from train_pytorch_model.machine.memory import available_memory

MEMORY_FRACTION = 1 / 4  # of the available memory, for all processes of a machine together
MIN_FRACTION = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all


def plan_cache(
    training: tuple[ImageDirectory, Preparation],
    validation: tuple[ImageDirectory, Preparation],
    epochs: int,
    readers: int = 0,
    views: Views | None = None,
    files: int = 1,
) -> CachePlan:
    """Decide what is cached.

    Features of `views` are, if all fit, and then images, unless memory holds too few. The processes
    of the machine need so many files, each with a cache of its own.
    """
    num_training, num_validation = (
        int(images.rows[-1]) + 1 for images, _ in (training, validation)
    )
    plan = CachePlan(num_training, num_validation, budget=0, summary="", readers=readers)
    if epochs == 1:
        return replace(plan, summary="each image once: there is one epoch")

    budget = int(available_memory() * MEMORY_FRACTION / files)
    feature_bytes = views.num_bytes * plan.num_images if views else 0
    if views and feature_bytes <= budget:
        plan = replace(plan, views=views)
        budget -= feature_bytes
        if views.per_image == 1:
            return replace(plan, summary="each image once: its features are kept")

    num_images = len(training[0]) + len(validation[0])
    image_bytes = _total_bytes(*training) + _total_bytes(*validation)
    fraction = budget / max(image_bytes, 1)
    if fraction < MIN_FRACTION:
        held = f"{memory_text(budget)} of memory would hold less than {MIN_FRACTION:.0%}"
        return replace(plan, summary=f"in every epoch: {held} of the images")
    which = "each image"
    if fraction < 1:
        which = f"about {int(num_images * fraction):,} of {num_images:,} images"
    used = memory_text(min(budget, image_bytes))
    return replace(plan, budget=budget, summary=f"{which} once, then cached ({used} of memory)")


def _total_bytes(images: ImageDirectory, preparation: Preparation) -> int:
    return len(images) * _mean_bytes(images, preparation)


def _mean_bytes(images: ImageDirectory, preparation: Preparation) -> int:
    """Return the mean bytes to cache per image, by a sample unless all have one size."""
    if preparation.cached_framing is not None and preparation.augment is None:
        return preparation.cached_framing.num_pixels * 3
    sizes = []
    for index in evenly_spaced(len(images), SAMPLED).tolist():
        with suppress(UnreadableImageError):
            height, width = limit_size(read_size(images.path(index)), preparation.short_side)
            sizes.append(preparation.num_cached_pixels(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def memory_text(num_bytes: int) -> str:
    """Return a number of bytes for people, in GiB or MiB."""
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
