"""The images of a directory as one epoch sees them, and the batches in which it does."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.data.epoch_plan import PlannedBatch
from train_pytorch_model.data.open_caches import NO_CACHE, DatasetCache
from train_pytorch_model.data.preparation import Preparation, for_inference
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.image_classifier.pixels import Decode, decode_pixels
from train_pytorch_model.image_classifier.spec import Framing


@dataclass(frozen=True)
class ImageDataset:
    """The images of a directory, each prepared in the same way to pixels of one size."""

    directory: ImageDirectory
    preparation: Preparation
    cache: DatasetCache
    seed_of: Callable[[int], int]  # index → seed of that image's augmentation

    def targets(self, indices: np.ndarray) -> Tensor:
        """Return what is to be learned of the images at `indices` (B,).

        These are class indices (B,), int64, or which categories they have, (B, C), float32.
        """
        return torch.from_numpy(self.directory.targets(indices))

    def number_of(self, index: int) -> int:
        """Return the number of an image in the cache."""
        return self.cache.first + int(self.directory.rows[index])

    def request(self, index: int) -> ImageRequest:
        """Return the request for an image, for this process or a reader process."""
        path = os.fspath(self.directory.path(index))
        return ImageRequest(path, self.number_of(index), self.seed_of(index))

    def read(self, index: int, decode: Decode = decode_pixels) -> Pixels:
        """Return the prepared pixels of an image. Raises `UnreadableImageError`."""
        return self.preparation(self.request(index), self.cache.images, decode)


def training_dataset(
    directory: ImageDirectory,
    preparation: Preparation,
    seed: int,
    epoch: int,
    cache: DatasetCache = NO_CACHE,
) -> ImageDataset:
    """Return images as training sees them; an augmentation depends only on (seed, epoch, image)."""
    seed_of = partial(derive_seed, seed, "augmentation", epoch)
    return ImageDataset(directory, preparation, cache, seed_of)


def inference_dataset(
    directory: ImageDirectory, framing: Framing, cache: DatasetCache = NO_CACHE
) -> ImageDataset:
    """Return images as validation and scoring see them."""
    return ImageDataset(directory, for_inference(framing), cache, lambda _: 0)


@dataclass(frozen=True)
class EpochPlan:
    """One pass through a dataset: the batches of an epoch, of a validation, or of a prediction."""

    key: str  # plans with the same key have the same batches
    batches: Sequence[PlannedBatch]
    dataset: ImageDataset
    framing: Framing  # the size of what `dataset.read` returns
