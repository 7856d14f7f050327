"""Predict every image of a directory, batch by batch; shared by scoring and evaluation."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from train_pytorch_model.data.cache import NO_CACHES, CachePlan, Caches, open_caches
from train_pytorch_model.data.loader import (
    Batch,
    Loader,
    Pass,
    num_readers,
    read_for_inference,
    start_readers,
)
from train_pytorch_model.data.plan import plan_validation
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier
from train_pytorch_model.inputs.bad_images import BAD_IMAGES, left_out, write_bad_images
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.inputs.perceptual_hash import NUM_BYTES
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.machine.memory import release_freed_memory
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.networks.models import build_model
from train_pytorch_model.words.wording import counted

LOG_EVERY_S = 30.0  # a line in the log of a job
RELEASE_EVERY = 64  # batches: 1 % of the time at 2,000 images/s, less where images are larger

T = TypeVar("T")


@dataclass(frozen=True)
class Predicted:
    """The predictions for one batch."""

    indices: np.ndarray
    """(B,), int64: which images of the dataset, ascending over all batches; B may be 0."""
    probabilities: np.ndarray
    """(B, C), float64; each row sums to one. C is the number of the model's categories."""
    features: np.ndarray
    """(B, F), float32: what the last layer gets of each image; (0, 0) for no images."""
    energies: np.ndarray
    """(B,), float64: how unlike the training images they are, `image_classifier.unknown`."""
    rejected: dict[int, str]
    """Images that could not be read: index → reason. They are not in the batch."""
    hashes: np.ndarray
    """(B, 16), uint8: the perceptual hashes of the images; zeros if they are not wanted."""


def predict_and_write(
    inputs: ScoringInputs,
    title: str,
    world: World,
    write: Callable[[Iterator[Predicted]], T],
    hashed: bool = False,
) -> T | None:
    """Predict all images on all processes, and `write` what the main one gets; the others return None.

    `title` says what for, such as `Scoring`; `hashed` computes perceptual hashes, too.
    """
    predictions = predict(inputs, title, world, hashed)
    if world.is_main:
        for warning in inputs.warnings:
            logger.warning(warning)
        return write(predictions)
    for _ in predictions:
        raise AssertionError("only the main process gets batches")
    return None


def predict(inputs: ScoringInputs, title: str, world: World, hashed: bool = False) -> Iterator[Predicted]:
    """Predict all images.

    The main process gets the batches of all processes, in image order. The others must iterate as well, and
    get none. Raises `InvalidModelDirectoryError` if weights do not fit, or probabilities are not finite.
    """
    images, spec = inputs.images, inputs.spec
    classifier = ImageClassifier(spec, build_model(inputs.model, spec.categories), world.device)
    size = f"{spec.framing.height} x {spec.framing.width} px ({inputs.size_reason})"
    logger.info(
        f"{title} {counted(len(images), 'image', 'images')} at {size},"
        f" {counted(len(spec.categories), 'category', 'categories')}, on {world.size} x {world.device.type}"
    )
    # A cache for hashes alone, of this process.
    hashing = CachePlan(int(images.rows[-1]) + 1, 0, 0, "", num_readers(world))
    alone = World(0, 1, 0, 1, world.device)
    rounds = math.ceil(len(images) / (BATCH_SIZE * world.size))  # in the last, a process may have no batch
    with (
        open_caches(hashing, alone) if hashed else nullcontext(NO_CACHES) as caches,
        start_readers(world) as readers,
        Loader(world.cores, readers) as loader,
        progress_bar(len(images), title) as bar,
    ):
        if readers is not None:
            readers.share(caches.shared)
        started_at = logged_at = time.perf_counter()
        done = 0
        local = _predict_local_images(classifier, images, loader, world, caches)
        for number in range(rounds):
            if number % RELEASE_EVERY == 0:
                release_freed_memory()
            for predicted in world.gather_on_main(list(islice(local, 1))):
                _check_finite(predicted, inputs)
                yield predicted
                count = len(predicted.indices) + len(predicted.rejected)
                bar.advance(count)
                done += count
                if (now := time.perf_counter()) - logged_at >= LOG_EVERY_S:
                    logged_at, rate = now, done / (now - started_at)
                    bar.log(done, f"ETA {duration((len(images) - done) / rate)}", f"{rate:.1f} images/s")


def _predict_local_images(
    classifier: ImageClassifier, images: ImageDirectory, loader: Loader, world: World, caches: Caches
) -> Iterator[Predicted]:
    """Predict this process's batches, without communicating with the others."""
    framing = classifier.spec.framing
    plan = plan_validation(len(images), BATCH_SIZE, world.rank, world.size)
    read = read_for_inference(images, framing, caches.training)
    for batch in loader.batches(Pass("prediction", plan, read, images.class_indices, framing)):
        hashes = np.zeros((len(batch.indices), NUM_BYTES), np.uint8)
        if len(caches.hashes):
            hashes = caches.hashes[images.rows[batch.indices]]
        yield _predict(batch, classifier, hashes)


def _predict(batch: Batch, classifier: ImageClassifier, hashes: np.ndarray) -> Predicted:
    features, energies = np.empty((0, 0)), np.empty(0)
    probabilities = np.empty((0, len(classifier.spec.categories)))
    if len(batch.indices):
        pixels = batch.images.permute(0, 2, 3, 1)
        features, probabilities, energies = classifier.predict_with_features(pixels)
    return Predicted(batch.indices, probabilities, features, energies, batch.rejected, hashes)


def _check_finite(predicted: Predicted, inputs: ScoringInputs) -> None:
    finite = np.isfinite(predicted.probabilities).all(axis=1)
    if not finite.all():
        first = inputs.images.file_names[int(predicted.indices[finite.argmin()])]
        raise inputs.model.error(
            f"its weights give probabilities that are not finite, for example for {first!r}.",
            "Train it again.",
        )


def report_bad_images(inputs: ScoringInputs, rejected: dict[int, str], root: Path) -> int:
    """Warn about the images that were left out, and list them in `bad_images.csv`; returns their number.

    `rejected` images were found while predicting, and are added to those found before. Raises
    `InvalidDatasetError` if they are too many.
    """
    _, late = inputs.leave_out(inputs.images, rejected)
    bad_images = [*inputs.bad_images, *late]
    if bad_images:
        logger.warning(left_out(bad_images))
        write_bad_images(root / BAD_IMAGES, bad_images)
    return len(bad_images)
