"""Predict every image of a directory, batch by batch."""

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset
from train_pytorch_model.data.epoch_plan import plan_validation
from train_pytorch_model.data.loader import Loader, num_readers, start_readers
from train_pytorch_model.data.open_caches import NO_CACHES, Caches, open_caches
from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.time_budget import duration
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier
from train_pytorch_model.image_classifier.seen import brightness_of
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.inputs.unreadable_images import (
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import Bar, logger, progress_bar
from train_pytorch_model.machine.memory import release_freed_memory
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES

LOG_EVERY_S = 30.0  # a line in the log of a job
RELEASE_EVERY = 64  # batches: 1 % of the time at 2,000 images/s, less where images are larger


@dataclass(frozen=True)
class PredictedBatch:
    """The predictions for one batch."""

    # (B,), int64: which images of the dataset, ascending over all batches; B may be 0.
    indices: np.ndarray
    probabilities: np.ndarray  # (B, C), float64; each row sums to one; C categories of the model
    # (B, F), float32: what the last layer gets of each image; (0, 0) for no images.
    features: np.ndarray
    energies: np.ndarray  # (B,), float64: how unlike the training images they are
    brightness: np.ndarray  # (B,), float64, 0 to 1
    unreadable: dict[int, str]  # images that are not in the batch: index → reason
    # (B, 16), uint8: the perceptual hashes of the images; zeros if they are not wanted.
    hashes: np.ndarray


def predict(
    inputs: ScoringInputs, title: str, world: World, hashed: bool
) -> Iterator[PredictedBatch]:
    """Predict all images on all processes, and yield the batches on the main one, in image order.

    `title` says what for, such as `Scoring`; `hashed` computes perceptual hashes, too. Raises
    `InvalidModelDirectoryError` if weights do not fit, or probabilities are not finite.
    """
    images = inputs.images
    spec = inputs.spec
    if world.is_main:
        for warning in inputs.warnings:
            logger.warning(warning)
    classifier = ImageClassifier(spec, build_model(inputs.model, spec.categories), world.device)
    logger.info(
        f"{title} {_count_of(inputs)} at {spec.framing.height} x"
        f" {spec.framing.width} px ({inputs.size_reason}),"
        f" {counted(len(spec.categories), 'category', 'categories')}, on {world.size} x"
        f" {world.device.type}"
    )
    # A cache for hashes alone, of this process.
    hashing = CachePlan(int(images.rows[-1]) + 1, 0, 0, "", num_readers(world))
    alone = World(0, 1, 0, 1, world.device)
    # In the last, a process may have no batch.
    num_rounds = math.ceil(len(images) / (BATCH_SIZE * world.size))
    with (
        open_caches(hashing, alone) if hashed else nullcontext(NO_CACHES) as caches,
        start_readers(world) as readers,
        Loader(world.cores, readers) as loader,
        progress_bar(len(images), title) as bar,
    ):
        if readers is not None:
            readers.use_cache(caches.shared)
        progress = _Progress(bar, len(images))
        local_batches = _predict_local_images(classifier, images, loader, world, caches)
        for number in range(num_rounds):
            if number % RELEASE_EVERY == 0:
                release_freed_memory()
            for batch in world.gather_on_main(list(islice(local_batches, 1))):
                _check_finite(batch, inputs)
                yield batch
                progress.advance(len(batch.indices) + len(batch.unreadable))


def _count_of(inputs: ScoringInputs) -> str:
    """Return how many images are predicted, and of how many, in words."""
    count = counted(len(inputs.images), "image", "images")
    num_unreadable = len(inputs.unreadable_images)
    if not num_unreadable:
        return count
    total = len(inputs.images) + num_unreadable
    return f"{len(inputs.images):,} of {total:,} images ({num_unreadable:,} cannot be read)"


def _check_finite(batch: PredictedBatch, inputs: ScoringInputs) -> None:
    """Raise `InvalidModelDirectoryError` if probabilities are not finite."""
    is_finite = np.isfinite(batch.probabilities).all(axis=1)  # (B,)
    if is_finite.all():
        return
    name = inputs.images.file_names[int(batch.indices[is_finite.argmin()])]
    raise inputs.model.error(
        f"its weights give probabilities that are not finite, for example for {name!r}.",
        "Train it again.",
    )


class _Progress:
    """Shows how many images are predicted; in the log of a job, every `LOG_EVERY_S` seconds."""

    def __init__(self, bar: Bar, num_images: int) -> None:
        self._bar = bar
        self._num_images = num_images
        self._done = 0
        self._started_at = time.perf_counter()
        self._logged_at = self._started_at

    def advance(self, count: int) -> None:
        """Show that `count` more images are done."""
        self._bar.advance(count)
        self._done += count
        now = time.perf_counter()
        if now - self._logged_at < LOG_EVERY_S:
            return
        self._logged_at = now
        rate = self._done / (now - self._started_at)
        remaining_s = (self._num_images - self._done) / rate
        self._bar.log(self._done, f"ETA {duration(remaining_s)}", f"{rate:.1f} images/s")


def _predict_local_images(
    classifier: ImageClassifier,
    images: ImageDirectory,
    loader: Loader,
    world: World,
    caches: Caches,
) -> Iterator[PredictedBatch]:
    """Predict this process's batches, without communicating with the others."""
    framing = classifier.spec.framing
    plan = plan_validation(len(images), BATCH_SIZE, world.rank, world.size)
    dataset = inference_dataset(images, framing, caches.training)
    for batch in loader.batches(EpochPlan("prediction", plan, dataset, framing)):
        features = np.empty((0, 0))
        probabilities = np.empty((0, len(classifier.spec.categories)))
        energies = np.empty(0)
        brightness = np.empty(0)
        if len(batch.indices):
            pixels = batch.images.permute(0, 2, 3, 1)  # (B, H, W, 3)
            features, probabilities, energies = classifier.predict_with_features(pixels)
            brightness = brightness_of(pixels)
        hashes = np.zeros((len(batch.indices), NUM_BYTES), np.uint8)
        if len(caches.hashes):
            hashes = caches.hashes[images.rows[batch.indices]]
        yield PredictedBatch(
            indices=batch.indices,
            probabilities=probabilities,
            features=features,
            energies=energies,
            brightness=brightness,
            unreadable=batch.unreadable,
            hashes=hashes,
        )


def report_unreadable_images(inputs: ScoringInputs, unreadable: dict[int, str], root: Path) -> int:
    """Warn of images that could not be read, before and now; list and count them.

    May raise `InvalidDatasetError`.
    """
    _, records = without_unreadable_images(inputs.images, unreadable, inputs.is_limited)
    unreadable_images = [*inputs.unreadable_images, *records]
    list_unreadable_images(root, unreadable_images)
    return len(unreadable_images)
