"""Processes that prepare whole images give the same batches as threads, even if a process dies."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.faults import faulty_decoder
from tests.painting import paint_folders
from tests.recipes import decided_recipe

from train_pytorch_model.data import decoder_process, preparation
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cache import DecodeCache
from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.data.dataset import EpochPlan, inference_dataset, training_dataset
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.epoch_plan import plan_training
from train_pytorch_model.data.loader import Loader
from train_pytorch_model.data.open_caches import NO_CACHES, Caches, open_caches
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.image_classifier.spec import Framing

pytestmark = pytest.mark.skipif(
    not hasattr(os, "memfd_create"), reason="reader processes require Linux"
)

ALONE = World(0, 1, 0, 1, torch.device("cpu"))
FRAMING = Framing(16, 16, 0.875)
CROPS = decided_recipe(augmentation="random-resized-crop", horizontal_flip=True)
NUM_READERS = 2


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> ImageDirectory:
    root = paint_folders(tmp_path_factory.mktemp("readers") / "images", 12, size=(60, 45))
    return open_image_directory(root, "images")


@contextmanager
def started(serve: Callable[..., None] = decoder_process.serve) -> Iterator[Decoders]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoder_process, "serve", serve)
        readers = Decoders([preparation.__name__])
        try:
            yield readers
        finally:
            readers.close()


@pytest.fixture(scope="module")
def readers() -> Iterator[Decoders]:
    with started() as these:
        yield these


@pytest.fixture
def faulty() -> Iterator[Decoders]:
    with started(faulty_decoder.serve) as these:
        yield these


def training_pass(images: ImageDirectory, epoch: int, caches: Caches = NO_CACHES) -> EpochPlan:
    plan = plan_training(len(images), 16, 1, 0, epoch, 0, 1, 0)
    dataset = training_dataset(
        images, for_training(CROPS, FRAMING, FRAMING), 0, epoch, caches.training
    )
    return EpochPlan(f"{epoch}", plan, dataset, FRAMING)


def validation_pass(images: ImageDirectory, caches: Caches = NO_CACHES) -> EpochPlan:
    plan = plan_training(len(images), 7, 1, 0, 1, 0, 1, 0)
    dataset = inference_dataset(images, FRAMING, caches.validation)
    return EpochPlan("validation", plan, dataset, FRAMING)


def assert_same(found: list[Batch], expected: list[Batch]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one.images, other.images)
        assert one.images.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(one.targets, other.targets)
        assert one.indices.tolist() == other.indices.tolist()
        assert one.unreadable == other.unreadable


def test_processes_prepare_the_same_batches_as_threads(
    readers: Decoders, painted: ImageDirectory
) -> None:
    passes = [training_pass(painted, 1), training_pass(painted, 2), validation_pass(painted)]
    for current in passes:
        with Loader(NUM_READERS) as threads, Loader(NUM_READERS, readers) as loader:
            assert_same(list(loader.batches(current)), list(threads.batches(current)))


def test_unreadable_images_are_reported_as_by_threads(
    readers: Decoders, painted: ImageDirectory, tmp_path: Path
) -> None:
    root = shutil.copytree(painted.path(0).parent.parent, tmp_path / "images")
    images = open_image_directory(root, "images")
    for index in (3, 4, 17):
        images.path(index).write_bytes(b"no image")
    images.path(20).unlink()
    current = training_pass(images, 1)
    with Loader(NUM_READERS) as threads, Loader(NUM_READERS, readers) as loader:
        found = list(loader.batches(current))
        assert_same(found, list(threads.batches(current)))
    unreadable = {index for batch in found for index in batch.unreadable}
    assert unreadable == {3, 4, 17, 20}


def test_cached_images_are_shared_by_all_readers(painted: ImageDirectory, tmp_path: Path) -> None:
    root = shutil.copytree(painted.path(0).parent.parent, tmp_path / "images")
    images = open_image_directory(root, "images")
    count = len(images)
    plan = CachePlan(count, count, NUM_READERS << 22, "", NUM_READERS)
    with Loader(NUM_READERS) as threads:
        expected = [list(threads.batches(training_pass(images, epoch))) for epoch in (1, 2)]
        validated = list(threads.batches(validation_pass(images)))
    with started() as readers, open_caches(plan, ALONE) as caches:
        readers.use_cache(caches.shared)
        with Loader(NUM_READERS, readers) as loader:
            assert_same(list(loader.batches(training_pass(images, 1, caches))), expected[0])
            assert_same(list(loader.batches(validation_pass(images, caches))), validated)
            assert caches.hashes.any(axis=1).all()
            assert (caches.hashes[:count] == caches.hashes[count:]).all()
            shutil.rmtree(root)
            assert_same(list(loader.batches(training_pass(images, 2, caches))), expected[1])
            assert_same(list(loader.batches(validation_pass(images, caches))), validated)


def test_a_restarted_reader_overwrites_nothing_in_the_cache(
    painted: ImageDirectory, tmp_path: Path
) -> None:
    root = shutil.copytree(painted.path(0).parent.parent, tmp_path / "images")
    images = open_image_directory(root, "images")
    plan = CachePlan(len(images), len(images), 4 << 20, "", 1)
    with Loader(1) as threads:
        expected = [list(threads.batches(training_pass(images, epoch))) for epoch in (1, 2)]
    with started() as readers, open_caches(plan, ALONE) as caches:
        readers.use_cache(caches.shared)
        with Loader(1, readers) as loader:
            assert_same(list(loader.batches(training_pass(images, 1, caches))), expected[0])
            (reader,) = readers._all
            os.kill(reader.pid, signal.SIGKILL)
            loaded = list(loader.batches(validation_pass(images, caches)))
            assert not any(batch.unreadable for batch in loaded)
            assert readers._all[0].pid != reader.pid
            shutil.rmtree(root)
            assert_same(list(loader.batches(training_pass(images, 2, caches))), expected[1])


def test_only_an_image_that_crashes_its_reader_is_unreadable(
    faulty: Decoders, painted: ImageDirectory, tmp_path: Path
) -> None:
    root = shutil.copytree(painted.path(0).parent.parent, tmp_path / "images")
    crashing = sorted((root / "red").iterdir())[5]
    crashing.rename(crashing.with_stem("crash"))
    images = open_image_directory(root, "images")
    (index,) = (index for index in range(len(images)) if images.path(index).stem == "crash")
    with Loader(NUM_READERS, faulty) as loader:
        batches = list(loader.batches(training_pass(images, 1)))
    unreadable = {index: reason for batch in batches for index, reason in batch.unreadable.items()}
    assert unreadable == {index: "its decoder crashed (SIGSEGV)"}
    assert sum(len(batch.indices) for batch in batches) == len(images) - 1


def test_threads_prepare_images_if_no_reader_starts(painted: ImageDirectory) -> None:
    current = training_pass(painted, 1)
    with started(sys.exit) as none, Loader(2) as threads, Loader(2, none) as loader:
        assert_same(list(loader.batches(current)), list(threads.batches(current)))
        assert none._all == []


def test_readers_of_each_rank_write_to_their_own_parts_of_the_cache() -> None:
    plan = CachePlan(4, 0, 6 << 22, "", 3)
    with open_caches(plan, ALONE) as caches:
        assert caches.shared is not None
        first, second = (
            replace(caches.shared, process=process, num_processes=2) for process in (0, 1)
        )
        pixels = np.full((4, 5, 3), 7, np.uint8)
        DecodeCache(first, 2).put(1, pixels)
        again = DecodeCache(second, 0).get(1)
        assert again is not None
        assert (again == pixels).all()
        DecodeCache(second, 3).put(2, pixels)  # which only reads
        assert DecodeCache(first, 0).get(2) is None
