"""The cache of decoded images: the same pixels, within bounds."""

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import pytest
import torch
from tests.painting import paint_folders
from tests.recipes import decided_recipe

from train_pytorch_model.config.recipe import Augmentation
from train_pytorch_model.data import cache_budget, cache_plan
from train_pytorch_model.data import open_caches as open_caches_module
from train_pytorch_model.data.cache_budget import plan_cache
from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.data.dataset import inference_dataset, training_dataset
from train_pytorch_model.data.open_caches import NO_CACHES, Caches, DatasetCache, open_caches
from train_pytorch_model.data.preparation import Preparation, for_inference, for_training
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.distributed.peers import Peer
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory, open_image_directory
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.decoding import Pixels, UnreadableImageError
from train_pytorch_model.image_classifier.pixels import decode_pixels, reduce
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.quality.perceptual_hash import perceptual_hash

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))
FRAMING = Framing(16, 16, 0.875)  # images of 60 x 45 px are bounded to 32 x 24
MIB = 1 << 20
PLAN = CachePlan(num_training=100, num_validation=50, budget=4 * MIB, summary="")
AUGMENTATIONS: tuple[Augmentation, ...] = ("none", "padded-crop", "random-resized-crop")
CROPS = for_training(decided_recipe(augmentation="random-resized-crop"), FRAMING, FRAMING)

T = TypeVar("T")


def noise(number: int, height: int = 24, width: int = 32) -> Pixels:
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def read(cache: DatasetCache, row: int, decode: Callable[[], Pixels]) -> Pixels:
    """Return a whole image, decoded by a function if it is not cached."""
    prepare = Preparation(9999, cached_framing=None, augment=None, colours=Colours())
    return prepare(ImageRequest("", cache.first + row), cache.images, lambda *_: decode())


def never() -> Pixels:
    raise AssertionError("the image is decoded again")


@pytest.fixture(scope="module")
def painted(tmp_path_factory: pytest.TempPathFactory) -> ImageDirectory:
    """Twelve images of 60 x 45 px."""
    root: Path = paint_folders(tmp_path_factory.mktemp("painted") / "data", 4, size=(60, 45))
    return open_image_directory(root, "Training dataset")


# ── Pixels ───────────────────────────────────────────────────────────────────────────────────────


def test_cached_pixels_equal_decoded_ones() -> None:
    with open_caches(PLAN, ALONE) as caches:
        for row in range(50):
            assert (
                read(caches.training, row, partial(noise, row, 5 + row, 7))
                == noise(row, 5 + row, 7)
            ).all()
            assert (
                read(caches.validation, row, partial(noise, 900 + row)) == noise(900 + row)
            ).all()
        for row in range(50):
            assert (read(caches.training, row, never) == noise(row, 5 + row, 7)).all()
            assert (read(caches.validation, row, never) == noise(900 + row)).all()


def test_cached_pixels_are_read_only() -> None:
    with open_caches(PLAN, ALONE) as caches:
        read(caches.training, 3, lambda: noise(3))
        with pytest.raises(ValueError, match="read-only"):
            read(caches.training, 3, never)[0, 0] = 0


@pytest.mark.parametrize("augmentation", AUGMENTATIONS)
def test_training_and_validation_see_the_same_pixels_with_and_without_a_cache(
    painted: ImageDirectory, augmentation: Augmentation
) -> None:
    recipe = decided_recipe(augmentation=augmentation)
    early = Framing(8, 8, 0.875)  # of the first epoch, which caches what the others need

    def pixels_of(caches: Caches) -> list[list[bytes]]:
        datasets = [
            training_dataset(
                painted, for_training(recipe, framing, FRAMING), 1, epoch, caches.training
            )
            for epoch, framing in ((1, early), (2, FRAMING), (3, FRAMING))
        ]
        datasets += [inference_dataset(painted, FRAMING, caches.validation)] * 2
        return [
            [dataset.read(index).tobytes() for index in range(len(painted))] for dataset in datasets
        ]

    with open_caches(PLAN, ALONE) as caches:
        assert pixels_of(caches) == pixels_of(NO_CACHES)


def test_hashes_are_of_whole_images_whatever_is_cached(painted: ImageDirectory) -> None:
    """Those of images that are not read yet are zeros, and so are all on processes that share
    another's.
    """
    expected = [
        perceptual_hash(reduce(decode_pixels(painted.path(index), 16), 16)) for index in range(12)
    ]
    for budget in (0, PLAN.budget):
        with open_caches(replace(PLAN, budget=budget), ALONE) as caches:
            for index in range(3, 12):
                training_dataset(painted, CROPS, 1, 1, caches.training).read(index)
            inference_dataset(painted, FRAMING, caches.validation).read(5)
            assert caches.hashes.shape == (150, 16)
            assert (caches.hashes[3:12] == expected[3:]).all()
            assert (caches.hashes[105] == expected[5]).all()
            assert np.count_nonzero(caches.hashes.any(axis=1)) == 10


def test_later_epochs_need_no_files(tmp_path: Path) -> None:
    directory = open_image_directory(paint_folders(tmp_path / "data", 2), "Training dataset")
    with open_caches(PLAN, ALONE) as caches:
        dataset = inference_dataset(directory, FRAMING, caches.validation)
        first = [dataset.read(index).copy() for index in range(6)]
        for index in range(6):
            directory.path(index).unlink()
        assert all((dataset.read(index) == first[index]).all() for index in range(6))


def test_an_image_keeps_its_place_when_others_are_left_out(painted: ImageDirectory) -> None:
    with open_caches(PLAN, ALONE) as caches:
        whole = inference_dataset(painted, FRAMING, caches.validation)
        first = [whole.read(index).copy() for index in range(12)]
        rest = inference_dataset(painted.select(np.arange(5, 12)), FRAMING, caches.validation)
        assert all((rest.read(index) == first[5 + index]).all() for index in range(7))


def test_an_unreadable_image_is_unreadable_each_time() -> None:
    def torn() -> Pixels:
        raise UnreadableImageError("torn")

    with open_caches(PLAN, ALONE) as caches:
        for _ in range(2):
            with pytest.raises(UnreadableImageError, match=r"^torn$"):
                read(caches.training, 1, torn)


def test_threads_can_decode_concurrently() -> None:
    with (
        open_caches(replace(PLAN, budget=32 * MIB), ALONE) as caches,
        ThreadPoolExecutor(8) as pool,
    ):
        for _ in range(3):
            found = pool.map(
                lambda i: read(caches.training, i % 100, lambda: noise(i % 100, 100, 100)),
                range(400),
            )
            assert all((pixels == noise(i % 100, 100, 100)).all() for i, pixels in enumerate(found))


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────


def test_images_that_do_not_fit_are_decoded_each_time() -> None:
    half = noise(0, 1000, 4 * MIB // 6000)
    decoded: list[int] = []

    def decode(row: int) -> Pixels:
        decoded.append(row)
        return half

    with open_caches(replace(PLAN, budget=8 * MIB), ALONE) as caches:
        for _ in range(2):
            for row in range(6):
                assert (read(caches.training, row, partial(decode, row)) == half).all()
    assert decoded == [0, 1, 2, 3, 4, 5, 4, 5]


def test_an_image_larger_than_the_cache_is_decoded_each_time() -> None:
    large = noise(0, 1000, 4 * MIB // 3000 + 1)
    with open_caches(PLAN, ALONE) as caches:
        read(caches.training, 0, lambda: large)
        with pytest.raises(AssertionError, match="decoded again"):
            read(caches.training, 0, never)
        read(caches.training, 1, lambda: noise(1))
        assert (read(caches.training, 1, never) == noise(1)).all()


@pytest.mark.parametrize("most", [100, 200])
def test_without_a_budget_nothing_is_cached(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_plan, "MAX_HASHED", most)
    with open_caches(replace(PLAN, budget=0), ALONE) as caches:
        assert (caches is NO_CACHES) is (most == 100)  # otherwise it holds hashes
        read(caches.training, 0, lambda: noise(0))
        with pytest.raises(AssertionError, match="decoded again"):
            read(caches.training, 0, never)


@pytest.mark.parametrize(
    ("epochs", "available", "budget", "summary"),
    [
        (1, 1 << 40, 0, "each image once: there is one epoch"),
        (2, 1 << 40, 1 << 38, "each image once, then cached (0.0 MiB of memory)"),
        (2, 36864 * 2, 36864 // 2, "about 12 of 24 images once, then cached (0.0 MiB of memory)"),
        (2, 2000, 0, "in every epoch: 0.0 MiB of memory would hold less than 5% of the images"),
    ],
)
def test_the_plan_says_what_is_cached_or_why_nothing_is(
    painted: ImageDirectory,
    monkeypatch: pytest.MonkeyPatch,
    epochs: int,
    available: int,
    budget: int,
    summary: str,
) -> None:
    monkeypatch.setattr(cache_budget, "available_memory", lambda: available)
    validation = painted.select(np.arange(12)), for_inference(FRAMING)
    plan = plan_cache((painted, CROPS), validation, epochs)
    wanted = 12 * (24 * 32 * 3) + 12 * (16 * 16 * 3)
    assert wanted == 36864
    assert plan.budget == budget
    assert plan.summary == summary
    assert (plan.num_training, plan.num_validation) == (12, 12)


@pytest.mark.parametrize(
    ("augmentation", "largest", "kept"),
    [
        ("random-resized-crop", FRAMING, 24 * 32),
        ("none", FRAMING, 16 * 16),
        ("padded-crop", FRAMING, 16 * 16),
        (
            "none",
            Framing(224, 224, 0.875),
            39 * 40,
        ),  # images of 45 x 60 px are not enlarged for the cache
    ],
)
def test_memory_is_planned_for_what_is_cached(
    painted: ImageDirectory,
    monkeypatch: pytest.MonkeyPatch,
    augmentation: Augmentation,
    largest: Framing,
    kept: int,
) -> None:
    """Without random crops, the framed image: at the largest size, or unscaled if smaller."""
    early = Framing(8, 8, 0.875)
    prepared = for_training(decided_recipe(augmentation=augmentation), early, largest)
    with open_caches(PLAN, ALONE) as caches:
        training_dataset(painted, prepared, 1, 1, caches.training).read(0)
        assert caches.training.images is not None
        cached = caches.training.images.get(0)
        assert cached is not None
        assert cached.nbytes == kept * 3
    dataset, wanted = (painted, prepared), 2 * len(painted) * kept * 3
    for available, summary in (
        (4 * wanted, "each image once, "),
        (4 * wanted - 4, "about 23 of 24 "),
    ):
        monkeypatch.setattr(cache_budget, "available_memory", lambda: available)  # noqa: B023, used at once
        assert plan_cache(dataset, dataset, 2).summary.startswith(summary)


def test_processes_that_cannot_share_a_file_share_the_budget(
    painted: ImageDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_budget, "available_memory", lambda: 1 << 40)
    dataset = (painted, CROPS)
    assert plan_cache(dataset, dataset, 2, files=2).budget == 1 << 37


def test_a_large_budget_is_given_in_gibibytes(
    painted: ImageDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_budget, "available_memory", lambda: 6 << 30)
    monkeypatch.setattr(cache_budget, "_mean_bytes", lambda *_: 1 << 27)
    plan = plan_cache((painted, CROPS), (painted, CROPS), 2)
    assert plan.summary == "about 12 of 24 images once, then cached (1.5 GiB of memory)"


# ── Several processes ────────────────────────────────────────────────────────────────────────────


class Together(World):
    """One of several processes, each a thread of this one."""

    meeting: ClassVar[threading.Barrier]
    parts: ClassVar[dict[int, Sequence[Any]]] = {}

    def gather(self, values: Sequence[T]) -> list[T]:
        self.parts[self.rank] = values
        self.meeting.wait()
        gathered = [value for rank in range(self.size) for value in self.parts[rank]]
        self.meeting.wait()
        return gathered


def peer(machine: str, namespace: str = "") -> Peer:
    return Peer("host", 1, None, "", machine, namespace)


@contextmanager
def opened_together(plan: CachePlan, *peers: Peer) -> Iterator[list[Caches]]:
    """Open the caches of several processes, each of which a launcher says to be alone."""
    size = len(peers)
    Together.meeting = threading.Barrier(size)
    worlds = [Together(rank, size, 0, 1, torch.device("cpu"), peers) for rank in range(size)]
    with ExitStack() as stack:
        opened = [open_caches(plan, world) for world in worlds]
        with ThreadPoolExecutor(size) as pool:
            caches = list(pool.map(stack.enter_context, opened))
        yield caches


def test_processes_read_each_others_images() -> None:
    plan = replace(PLAN, budget=1 << 40)  # sparse: far more than there is
    with opened_together(plan, peer("a"), peer("a")) as opened:
        one, other = (caches.training for caches in opened)
        for number in range(0, 100, 2):
            read(one, number, partial(noise, number, 200, 300))
            read(other, number + 1, partial(noise, number + 1, 200, 300))
        for number in range(50):
            for cache in (one, other):
                assert (read(cache, number, never) == noise(number, 200, 300)).all()
        assert [len(caches.hashes) for caches in opened] == [150, 0]


@pytest.mark.parametrize("other", [peer("b"), peer("a", "another")])
def test_processes_that_cannot_share_memory_have_caches_of_their_own(other: Peer) -> None:
    half = noise(0, 1000, PLAN.budget // 6000)  # each may fill its whole cache
    with opened_together(PLAN, peer("a"), other) as opened:
        for caches in opened:
            for number in range(2):
                with pytest.raises(AssertionError, match="decoded again"):
                    read(caches.training, number, never)
                read(caches.training, number, lambda: half)
            assert (read(caches.training, 1, never) == half).all()
            assert len(caches.hashes) == 150


def test_a_file_of_another_container_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process has the same number there as the one that made the cache has here."""
    (tmp_path / "precious").write_bytes(b"precious")
    make_file = open_caches_module._make_file

    def make_unseen(*arguments: Any) -> Any:
        return make_file(*arguments)._replace(path=str(tmp_path / "precious"))

    monkeypatch.setattr(open_caches_module, "_make_file", make_unseen)
    with opened_together(PLAN, peer("a"), peer("a")) as opened:
        assert opened == [NO_CACHES, NO_CACHES]
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_nothing_is_cached_if_the_file_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "memfd_create", fail)
    with opened_together(PLAN, peer("a"), peer("a")) as opened:
        assert opened == [NO_CACHES, NO_CACHES]


def test_nothing_is_cached_without_address_space_for_it() -> None:
    with open_caches(replace(PLAN, budget=1 << 60), ALONE) as caches:
        assert caches is NO_CACHES
