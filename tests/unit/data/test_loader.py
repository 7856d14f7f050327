"""Batches: order, pixels, prefetching, and images that cannot be read."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.painting import paint_folders
from tests.recipes import decided_recipe

from train_pytorch_model.data.batch import Batch, on_device
from train_pytorch_model.data.dataset import (
    EpochPlan,
    ImageDataset,
    inference_dataset,
    training_dataset,
)
from train_pytorch_model.data.epoch_plan import PlannedBatch, plan_validation
from train_pytorch_model.data.loader import PREFETCHED_BATCHES, Loader
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.image_classifier.decoding import Pixels, UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Decode, decode_pixels
from train_pytorch_model.image_classifier.spec import Framing

FRAMING = Framing(2, 3, 1.0)


Read = Callable[[int, Decode], Pixels]


def numbered(index: int, _: Decode = decode_pixels) -> Pixels:
    return np.full((2, 3, 3), index, dtype=np.uint8)


class MadeUpDataset(ImageDataset):
    """Images that a function makes from their indices."""

    def __init__(self, read: Read, num_images: int = 200) -> None:
        vars(self).update(read=read, num_images=num_images)

    def targets(self, indices: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(indices % 7)


def load(plan: list[PlannedBatch], dataset: ImageDataset, threads: int = 3) -> list[Batch]:
    with Loader(threads) as loader:
        return list(loader.batches(EpochPlan("", plan, dataset, FRAMING)))


def numbered_pass(key: str, num_images: int, batch_size: int, read: Read = numbered) -> EpochPlan:
    plan = plan_validation(num_images, batch_size, 0, 1)
    return EpochPlan(key, plan, MadeUpDataset(read, num_images), FRAMING)


@pytest.mark.parametrize("threads", [1, 4])
def test_batches_follow_the_plan_for_any_number_of_threads(threads: int) -> None:
    order = np.random.default_rng(0).permutation(50)
    plan = [PlannedBatch(order[start : start + 8], 16) for start in range(0, 50, 8)]
    batches = load(plan, MadeUpDataset(numbered), threads)
    assert [batch.indices.tolist() for batch in batches] == [
        planned.indices.tolist() for planned in plan
    ]
    for batch in batches:
        assert batch.images.shape == (len(batch.indices), 3, 2, 3)
        assert batch.images.dtype == torch.uint8
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        assert batch.images[:, 0, 0, 0].tolist() == batch.indices.tolist()
        assert batch.targets.dtype == torch.int64
        assert batch.targets.tolist() == (batch.indices % 7).tolist()
        assert batch.global_count == 16
        assert batch.unreadable == {}


def test_an_empty_share_is_an_empty_batch() -> None:
    (batch,) = load([PlannedBatch(np.empty(0, dtype=np.int64), 5)], MadeUpDataset(numbered))
    assert batch.images.shape == (0, 3, 2, 3)
    assert batch.targets.shape == (0,)
    assert batch.global_count == 5


def test_an_unreadable_image_leaves_no_gap() -> None:
    def read(index: int, _: Decode) -> Pixels:
        if index in (1, 4, 5, 6, 7):
            raise UnreadableImageError(f"image {index} is torn")
        return numbered(index)

    first, second, third = load(plan_validation(10, 4, 0, 1), MadeUpDataset(read))
    assert first.indices.tolist() == [0, 2, 3]
    assert first.images[:, 0, 0, 0].tolist() == [0, 2, 3]
    assert first.targets.tolist() == [0, 2, 3]
    assert first.images.is_contiguous(memory_format=torch.channels_last)
    assert first.unreadable == {1: "image 1 is torn"}
    assert second.images.shape == (0, 3, 2, 3)
    assert list(second.unreadable) == [4, 5, 6, 7]
    assert (first.global_count, second.global_count, third.global_count) == (4, 4, 2)
    assert third.indices.tolist() == [8, 9]


def test_a_programming_error_is_not_taken_for_an_unreadable_image() -> None:
    def read(index: int, _: Decode) -> Pixels:
        raise ZeroDivisionError(index)

    with pytest.raises(ZeroDivisionError):
        load(plan_validation(3, 2, 0, 1), MadeUpDataset(read))


def test_pixels_of_another_size_than_the_framing_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"could not broadcast"):
        load(
            plan_validation(1, 1, 0, 1),
            MadeUpDataset(lambda *_: np.zeros((4, 4, 3), dtype=np.uint8)),
        )


def test_the_number_of_prefetched_batches_is_limited() -> None:
    lock = threading.Lock()
    started: set[int] = set()

    def read(index: int, _: Decode) -> Pixels:
        with lock:
            started.add(index)
        return numbered(index)

    with Loader(2) as loader:
        batches = loader.batches(numbered_pass("", 40, 2, read))
        next(batches)
        with lock:
            assert max(started) < 2 * (1 + PREFETCHED_BATCHES)


def test_the_following_pass_is_prefetched_during_the_last_batches() -> None:
    lock = threading.Lock()
    started: list[int] = []

    def read(index: int, _: Decode) -> Pixels:
        with lock:
            started.append(index)
        return numbered(index + 100)

    following = numbered_pass("validation", 12, 2, read)
    with Loader(2) as loader:
        first = list(loader.batches(numbered_pass("training", 40, 2), lambda: following))
        assert len(first) == 20
        for future in [future for batch in loader._prefetched.pending for future in batch.futures]:
            future.result()
        assert sorted(started) == list(range(2 * PREFETCHED_BATCHES))
        second = list(loader.batches(numbered_pass("validation", 12, 2, read)))
    assert [batch.indices.tolist() for batch in second] == [[i, i + 1] for i in range(0, 12, 2)]
    assert [batch.images[0, 0, 0, 0].item() for batch in second] == list(range(100, 112, 2))
    assert sorted(started) == list(range(12))  # none is read twice


def test_the_following_pass_may_be_shorter_than_the_prefetch() -> None:
    with Loader(2) as loader:
        for _ in range(3):
            passes = [numbered_pass("a", 3, 2), numbered_pass("b", 2, 2)]
            for current, following in (passes, passes[::-1]):
                batches = list(loader.batches(current, lambda following=following: following))  # type: ignore[misc]
                found = sum(len(batch.indices) for batch in batches)
                assert found == vars(current.dataset)["num_images"]


def test_a_prefetched_pass_that_is_not_needed_is_dropped() -> None:
    with Loader(2) as loader:
        list(loader.batches(numbered_pass("training", 8, 2), lambda: numbered_pass("other", 8, 2)))
        (batch, *_) = loader.batches(numbered_pass("validation", 6, 3))
        assert batch.indices.tolist() == [0, 1, 2]


def test_more_batches_are_prefetched_if_they_are_small() -> None:
    started: set[int] = set()

    def read(index: int, _: Decode) -> Pixels:
        started.add(index)
        return numbered(index)

    with Loader(6) as loader:
        batches = loader.batches(numbered_pass("", 40, 1, read))
        next(batches)
        list(batches)
        assert loader._num_ahead(numbered_pass("", 40, 1)) == 12
        assert loader._num_ahead(numbered_pass("", 40, 4)) == PREFETCHED_BATCHES
    assert started == set(range(40))


def test_on_a_cpu_batches_are_passed_through() -> None:
    (batch,) = load(plan_validation(3, 4, 0, 1), MadeUpDataset(numbered))
    assert list(on_device([batch], torch.device("cpu"))) == [batch]


def test_a_pass_may_be_abandoned_early() -> None:
    with Loader(2) as loader:
        batches = loader.batches(numbered_pass("", 40, 2))
        assert next(batches).indices.tolist() == [0, 1]
    assert loader.waited_s >= 0


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> ImageDirectory:
    root: Path = paint_folders(tmp_path_factory.mktemp("painted") / "data", 2, size=(40, 30))
    return open_image_directory(root, "Training dataset")


def test_the_augmentation_of_an_image_depends_on_seed_epoch_and_image_only(
    painted: ImageDirectory,
) -> None:
    framing = Framing(16, 16, 0.875)
    prepared = for_training(decided_recipe(augmentation="random-resized-crop"), framing, framing)

    def view(seed: int, epoch: int, index: int) -> bytes:
        return training_dataset(painted, prepared, seed, epoch).read(index).tobytes()

    dataset = training_dataset(painted, prepared, 1, 0)
    in_order = [dataset.read(index).tobytes() for index in range(6)]
    in_reverse = [dataset.read(index).tobytes() for index in reversed(range(6))]
    assert in_reverse[::-1] == in_order
    assert view(1, 0, 3) == in_order[3]
    assert view(1, 1, 3) != in_order[3]
    assert view(2, 0, 3) != in_order[3]


def test_validation_and_scoring_see_the_framed_image(painted: ImageDirectory) -> None:
    pixels = inference_dataset(painted, Framing(30, 40, 1.0)).read(0)
    assert (pixels == np.asarray(Image.open(painted.path(0)))).all()
    assert inference_dataset(painted, Framing(8, 8, 0.5)).read(0).shape == (8, 8, 3)


def test_a_file_that_is_gone_is_an_unreadable_image(
    painted: ImageDirectory, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / name).write_bytes(painted.path(0).read_bytes())
    directory = open_image_directory(tmp_path, "Training dataset")
    (tmp_path / "b/2.png").unlink()
    framing = Framing(2, 3, 1.0)
    prepared = for_training(decided_recipe(augmentation="none"), framing, framing)
    for dataset in (
        inference_dataset(directory, framing),
        training_dataset(directory, prepared, 1, 0),
    ):
        (batch,) = load(plan_validation(2, 2, 0, 1), dataset)
        assert batch.unreadable == {1: "the file is gone"}
