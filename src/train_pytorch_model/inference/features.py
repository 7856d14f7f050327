"""What a network's last layer gets of images, computed once for each."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from train_pytorch_model.data.dataset import EpochPlan, inference_dataset
from train_pytorch_model.data.epoch_plan import PlannedBatch
from train_pytorch_model.data.loader import Loader, start_readers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.spec import ClassifierSpec

IMAGES_AT_ONCE = 16  # on a CPU, more are not faster; always the same, for the same bits
FEW_S = 1.0  # of a few images: enough to tell how fast they are


@dataclass(frozen=True)
class Features:
    """The features of N images."""

    values: np.ndarray  # (N, D), float32; NaN for an image that could not be read
    seconds: float  # that computing them took, images read included


class FeatureExtractor:
    """Computes the features of images as the model predicts them: in float32, at its size."""

    def __init__(self, spec: ClassifierSpec, network: nn.Module, world: World) -> None:
        self._spec = spec
        self._world = world
        self._classifier = ImageClassifier(spec, network, world.device)

    def features(
        self,
        images: ImageDirectory,
        indices: np.ndarray,
        after_batch: Callable[[int], None] = lambda _: None,
    ) -> Features:
        """Return the features of the images at `indices` (N,), ascending.

        `after_batch` is called with the number of images of each batch.
        """
        started_at = time.perf_counter()
        framing = self._spec.framing
        parts = np.split(indices, range(IMAGES_AT_ONCE, len(indices), IMAGES_AT_ONCE))
        plan = [PlannedBatch(part, len(part)) for part in parts if len(part)]
        dataset = inference_dataset(images, framing)
        values: np.ndarray | None = None
        with (
            start_readers(self._world) as readers,
            Loader(self._world.cores, readers) as loader,
        ):
            for batch in loader.batches(EpochPlan("features", plan, dataset, framing)):
                if len(batch.indices):
                    pixels = batch.images.permute(0, 2, 3, 1)  # (B, H, W, 3)
                    computed, _, _ = self._classifier.predict_with_features(pixels)
                    if values is None:
                        shape = (len(indices), computed.shape[1])
                        values = np.full(shape, np.nan, np.float32)
                    values[np.searchsorted(indices, batch.indices)] = computed
                after_batch(len(batch.indices) + len(batch.unreadable))
        if values is None:  # of no image
            values = np.full((len(indices), 0), np.nan, np.float32)
        return Features(values, time.perf_counter() - started_at)

    @torch.inference_mode()
    def seconds_per_image(self, images: ImageDirectory, few: np.ndarray, more: np.ndarray) -> float:
        """Return what an image takes, measured on a few, after as many to warm up.

        Of a small network these say most about how long reading takes to start, so that it is
        measured on more.
        """
        self.features(images, few)
        seconds = self.features(images, few).seconds
        if seconds > FEW_S:
            return seconds / len(few)
        return self.features(images, more).seconds / len(more)
