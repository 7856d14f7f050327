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
from train_pytorch_model.data import epoch_plan
from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset
from train_pytorch_model.data.loader import Loader, num_readers, start_readers
from train_pytorch_model.data.open_caches import NO_CACHES, Caches, open_caches
from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.time_budget import duration
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.inputs.unreadable_images import (
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.memory import release_freed_memory
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES

LOG_EVERY_S = 30.0  # a line in the log of a job
RELEASE_EVERY = 64  # batches: 1 % of the time at 2,000 images/s, less where images are larger


@dataclass(frozen=True)
class PredictedBatch:
    """The predictions for one batch."""

    indices: (
        np.ndarray
    )  # (B,), int64: which images of the dataset, ascending over all batches; B may be 0
    probabilities: np.ndarray  # (B, C), float64; each row sums to one; C categories of the model
    features: (
        np.ndarray
    )  # (B, F), float32: what the last layer gets of each image; (0, 0) for no images
    energies: np.ndarray  # (B,), float64: how unlike the training images they are
    unreadable: dict[
        int, str
    ]  # images that could not be read: index → reason. They are not in the batch.
    hashes: (
        np.ndarray
    )  # (B, 16), uint8: the perceptual hashes of the images; zeros if they are not wanted


def predict(
    inputs: ScoringInputs, title: str, world: World, hashed: bool
) -> Iterator[PredictedBatch]:
    """Predict all images on all processes; yield all batches, in image order, on the main one, else
    none.

    `title` says what for, such as `Scoring`; `hashed` computes perceptual hashes, too. Raises
    `InvalidModelDirectoryError` if weights do not fit, or probabilities are not finite.
    """
    images, spec = inputs.images, inputs.spec
    for warning in inputs.warnings if world.is_main else ():
        logger.warning(warning)
    classifier = ImageClassifier(spec, build_model(inputs.model, spec.categories), world.device)
    size = f"{spec.framing.height} x {spec.framing.width} px ({inputs.size_reason})"
    logger.info(
        f"{title} {counted(len(images), 'image', 'images')} at {size},"
        f" {counted(len(spec.categories), 'category', 'categories')}, on {world.size} x"
        f" {world.device.type}"
    )
    # A cache for hashes alone, of this process.
    hashing = CachePlan(int(images.rows[-1]) + 1, 0, 0, "", num_readers(world))
    alone = World(0, 1, 0, 1, world.device)
    rounds = math.ceil(
        len(images) / (BATCH_SIZE * world.size)
    )  # in the last, a process may have no batch
    with (
        open_caches(hashing, alone) if hashed else nullcontext(NO_CACHES) as caches,
        start_readers(world) as readers,
        Loader(world.cores, readers) as loader,
        progress_bar(len(images), title) as bar,
    ):
        if readers is not None:
            readers.use_cache(caches.shared)
        started_at = logged_at = time.perf_counter()
        done = 0
        local = _predict_local_images(classifier, images, loader, world, caches)
        for number in range(rounds):
            if number % RELEASE_EVERY == 0:
                release_freed_memory()
            for predicted in world.gather_on_main(list(islice(local, 1))):
                finite = np.isfinite(predicted.probabilities).all(axis=1)
                if not finite.all():
                    name = images.file_names[int(predicted.indices[finite.argmin()])]
                    raise inputs.model.error(
                        "its weights give probabilities that are not finite, for example for"
                        f" {name!r}.",
                        "Train it again.",
                    )
                yield predicted
                count = len(predicted.indices) + len(predicted.unreadable)
                bar.advance(count)
                done += count
                if (now := time.perf_counter()) - logged_at >= LOG_EVERY_S:
                    logged_at, rate = now, done / (now - started_at)
                    bar.log(
                        done, f"ETA {duration((len(images) - done) / rate)}", f"{rate:.1f} images/s"
                    )


def _predict_local_images(
    classifier: ImageClassifier,
    images: ImageDirectory,
    loader: Loader,
    world: World,
    caches: Caches,
) -> Iterator[PredictedBatch]:
    """Predict this process's batches, without communicating with the others."""
    framing = classifier.spec.framing
    plan = epoch_plan.plan_validation(len(images), BATCH_SIZE, world.rank, world.size)
    dataset = inference_dataset(images, framing, caches.training)
    for batch in loader.batches(EpochPlan("prediction", plan, dataset, framing)):
        features, energies = np.empty((0, 0)), np.empty(0)
        probabilities = np.empty((0, len(classifier.spec.categories)))
        if len(batch.indices):
            pixels = batch.images.permute(0, 2, 3, 1)
            features, probabilities, energies = classifier.predict_with_features(pixels)
        hashes = np.zeros((len(batch.indices), NUM_BYTES), np.uint8)
        if len(caches.hashes):
            hashes = caches.hashes[images.rows[batch.indices]]
        yield PredictedBatch(
            batch.indices, probabilities, features, energies, batch.unreadable, hashes
        )


def report_unreadable_images(inputs: ScoringInputs, unreadable: dict[int, str], root: Path) -> int:
    """Warn of images that could not be read, before and now; list and count them.

    May raise `InvalidDatasetError`.
    """
    _, records = without_unreadable_images(inputs.images, unreadable, inputs.is_limited)
    unreadable_images = [*inputs.unreadable_images, *records]
    list_unreadable_images(root, unreadable_images)
    return len(unreadable_images)
