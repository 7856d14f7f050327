"""Batches of pixels: planned, the same on every process; prepared in threads; mixed by CutMix."""

import functools
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from random import Random
from typing import Self

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.data import preparation
from train_pytorch_model.data.cache import NO_CACHE, Cache
from train_pytorch_model.data.decoders import Decoders, ImageRequest, fill
from train_pytorch_model.data.preparation import Preparation, for_inference
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.pixels import Decode, Pixels
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.words.settings import derive_seed

Read = Callable[
    [int, Decode], Pixels
]  # index, decoder → pixels of one size; raises `UnreadableImageError`

PREFETCHED_BATCHES = 4  # in preparation or ready, ahead of the one in use
# Images per request to a process: the threads that wait for it, and hinder each other, wake up less
# often.
MAX_GROUP = 8
MIN_GROUPS = 4  # of a batch, so that it is ready soon


@dataclass(frozen=True)
class PlannedBatch:
    """One process's images of a step."""

    indices: (
        np.ndarray
    )  # (B,), int64: indices in the dataset; empty if other processes take all of them
    global_count: int  # images of all processes in this step


def plan_training(
    num_images: int,
    batch_size: int,
    min_local_batch: int,
    seed: int,
    epoch: int,
    rank: int,
    world_size: int,
    images_done: int = 0,
) -> list[PlannedBatch]:
    """One process's batches of an epoch: each image once over all processes, in a new order every
    epoch.

    The first `images_done` images of that order are skipped: they were trained before. All steps
    have equally many images, give or take one: a last step of two left-over images would move the
    weights as far as a step of sixteen. No process gets fewer than `min_local_batch` images: a step
    that is too small for all goes to fewer of them, and one that is too small for a single process
    is dropped.
    """
    order = np.random.default_rng(derive_seed(seed, "order", epoch)).permutation(num_images)[
        images_done:
    ]
    batches = []
    for indices in np.array_split(order, _num_steps(len(order), batch_size * world_size)):
        if takers := min(world_size, len(indices) // min_local_batch):
            own = np.array_split(indices, takers)[rank] if rank < takers else indices[:0]
            # A copy: a view would keep the whole permutation in memory.
            batches.append(PlannedBatch(own.copy(), len(indices)))
    return batches


def num_training_steps(
    num_images: int, batch_size: int, min_local_batch: int, world_size: int
) -> int:
    """Steps of an epoch: the length of every process's plan."""
    steps = _num_steps(num_images, batch_size * world_size)
    fewest, larger = divmod(num_images, steps)
    if fewest >= min_local_batch:
        return steps
    return larger if fewest + 1 >= min_local_batch else 0


def _num_steps(num_images: int, global_batch_size: int) -> int:
    """The fewest steps that hold all images; without any, one that is empty."""
    return max(1, -(-num_images // global_batch_size))


def plan_validation(
    num_images: int, batch_size: int, rank: int, world_size: int
) -> list[PlannedBatch]:
    """Batches of consecutive images, the same for any number of processes, dealt out round-robin."""
    starts = range(rank * batch_size, num_images, batch_size * world_size)
    batches = [np.arange(start, min(start + batch_size, num_images)) for start in starts]
    return [PlannedBatch(indices, len(indices)) for indices in batches]


@dataclass(frozen=True)
class ImageRead:
    """A `Read` of a directory's images; reader processes can serve its requests (`request`)."""

    directory: ImageDirectory
    preparation: Preparation
    cache: Cache
    seed_of: Callable[[int], int]  # index → seed of that image's augmentation

    def request(self, index: int) -> ImageRequest:
        """The request for an image of the directory."""
        number = self.cache.first + int(self.directory.rows[index])
        return ImageRequest(os.fspath(self.directory.path(index)), number, self.seed_of(index))

    def __call__(self, index: int, decode: Decode) -> Pixels:
        return self.preparation(self.request(index), self.cache.remember, decode)


@dataclass(frozen=True)
class Batch:
    """One process's images of a step."""

    # (B, 3, H, W), uint8, channels last; or features (B, D) of a frozen backbone. B may be 0.
    images: Tensor
    targets: (
        Tensor  # (B,), int64: class indices; or with CutMix (B, categories), float32: probabilities
    )
    indices: np.ndarray  # (B,), int64: the images' indices in the dataset
    global_count: int  # images planned in this step over all processes
    rejected: dict[int, str]  # planned images that cannot be read, not in the batch: index → reason


@dataclass(frozen=True)
class Pass:
    """One pass through a dataset: the batches of an epoch, or of a validation."""

    key: str  # passes with the same key have the same batches
    plan: Sequence[PlannedBatch]
    read: Read
    class_indices: np.ndarray
    framing: Framing  # the size of what `read` returns


def num_readers(world: World) -> int:
    """Reader processes per training process: for a GPU, which needs thousands of images/s, else 0."""
    return world.cores if world.device.type == "cuda" and hasattr(os, "memfd_create") else 0


def start_decoders(world: World) -> AbstractContextManager[Decoders]:
    """The decoder processes of a training process, for a `with`; for a GPU they import PyTorch as
    well.
    """
    return closing(Decoders([preparation.__name__] if num_readers(world) else []))


def start_readers(world: World) -> AbstractContextManager[Decoders | None]:
    """The reader processes, for a `with`; None if threads prepare the images."""
    return start_decoders(world) if num_readers(world) else nullcontext()


class Loader:
    """Prepares planned batches ahead of time, in threads that each have a process of their own.

    By default the process decodes and the thread does the rest, so that an image is written once,
    into its slot in the batch. To feed a GPU, the process does everything, for several images at
    once.
    """

    def __init__(self, threads: int, readers: Decoders | None = None) -> None:
        """`readers` (`start_readers`), if given, do everything; the loader does not end them."""
        self._threads, self._readers = threads, readers
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._decoders = readers or Decoders()
        self._prefetched: tuple[str, deque[_PendingBatch]] = "", deque()  # the key of their pass
        self.waited_s = 0.0  # by whoever takes the batches

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._readers is None:
            self._decoders.close()

    def batches(
        self, current: Pass, following: Callable[[], Pass | None] = lambda: None
    ) -> Iterator[Batch]:
        """The batches of a pass; while the last are in use, the first of the `following` are
        prepared.
        """
        key, pending = self._prefetched
        if key != current.key:
            for future in [future for batch in pending for future in batch.futures]:
                future.cancel()
            pending = deque()
        self._prefetched = "", deque()
        ahead = self._num_ahead(current)
        for planned in current.plan[len(pending) :]:
            pending.append(self._start(planned, current))
            if len(pending) > ahead:
                yield self._finish(pending.popleft())
        after = following() if pending else None
        prefetched: deque[_PendingBatch] = deque()
        if after is not None:
            self._prefetched = after.key, prefetched
        while pending:
            if after is not None and len(prefetched) < len(after.plan):
                prefetched.append(self._start(after.plan[len(prefetched)], after))
            yield self._finish(pending.popleft())

    def _num_ahead(self, current: Pass) -> int:
        """Batches to prepare ahead of the one in use: four batches of two images do not fill 16
        threads.
        """
        largest = len(current.plan[0].indices) if current.plan else 1  # no other is larger
        images = 2 * self._threads * self._group(largest)
        return max(PREFETCHED_BATCHES, -(-images // max(1, largest)))

    def _group(self, batch_size: int) -> int:
        """Images that a thread prepares per task."""
        return max(1, min(MAX_GROUP, batch_size // MIN_GROUPS)) if self._readers else 1

    def _start(self, planned: PlannedBatch, current: Pass) -> "_PendingBatch":
        """Have the threads fill the slots of a batch (B, H, W, 3), in memory from which a GPU can
        copy.
        """
        indices, group = planned.indices, self._group(len(planned.indices))
        shape = (len(indices), current.framing.height, current.framing.width, 3)
        slots = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        parts = [slice(start, start + group) for start in range(0, len(indices), group)]
        tasks = [
            self._pool.submit(self._fill, slots[at].numpy(), indices[at], current.read)
            for at in parts
        ]
        return _PendingBatch(planned, slots, current.class_indices, tasks)

    def _fill(self, slots: np.ndarray, indices: np.ndarray, read: Read) -> list[str | None]:
        """Like `fill`, with the images at N indices."""
        if self._readers and isinstance(read, ImageRead):
            requests = [read.request(int(index)) for index in indices]
            return self._readers.prepare(read.preparation, requests, slots)
        return fill(
            slots, (functools.partial(read, int(each), self._decoders.decode) for each in indices)
        )

    def _finish(self, pending: "_PendingBatch") -> Batch:
        """Wait for the images, and leave out those that cannot be read."""
        started_at = time.perf_counter()
        reasons = [reason for future in pending.futures for reason in future.result()]
        self.waited_s += time.perf_counter() - started_at
        pixels, indices = pending.slots, pending.planned.indices
        rejected = {
            int(index): why for index, why in zip(indices, reasons, strict=True) if why is not None
        }
        if rejected:
            good = np.flatnonzero([reason is None for reason in reasons])
            pixels, indices = pixels[torch.from_numpy(good)], indices[good]
        return Batch(
            images=pixels.permute(0, 3, 1, 2),
            targets=torch.from_numpy(pending.class_indices[indices].astype(np.int64)),
            indices=indices,
            global_count=pending.planned.global_count,
            rejected=rejected,
        )


@dataclass(frozen=True)
class _PendingBatch:
    planned: PlannedBatch
    slots: Tensor  # (B, H, W, 3), uint8
    class_indices: np.ndarray
    futures: Sequence[Future[list[str | None]]]


def on_device(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """The same batches on a device; a GPU receives each one while it still computes the previous
    one.
    """
    if device.type != "cuda":
        for batch in batches:
            yield replace(batch, images=batch.images.to(device), targets=batch.targets.to(device))
        return
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    ahead: deque[tuple[Batch, torch.cuda.Event]] = deque()
    for batch in batches:
        with torch.cuda.stream(copying):
            images = batch.images.to(device, non_blocking=True)
            targets = batch.targets.pin_memory().to(device, non_blocking=True)
            ahead.append((replace(batch, images=images, targets=targets), copying.record_event()))
        if len(ahead) > 1:
            yield _await_copy(*ahead.popleft())
    while ahead:
        yield _await_copy(*ahead.popleft())


def _await_copy(batch: Batch, copied: torch.cuda.Event) -> Batch:
    computing = torch.cuda.current_stream(batch.images.device)
    computing.wait_event(copied)  # the device waits, not this process
    for tensor in (batch.images, batch.targets):
        tensor.record_stream(computing)  # so that its memory is not reused too early
    return batch


def with_cutmix(batch: Batch, num_categories: int, probability: float, seed: int) -> Batch:
    """A batch for training with CutMix (Yun et al. 2019): its targets are probabilities (B, C),
    float32.

    With this `probability`, as `seed` decides, a box of each image shows the image before it at its
    place; it covers a uniformly distributed fraction of the area, which is the probability of the
    other's category. `v2.CutMix` draws from PyTorch's CPU generator, which a GPU's run does not
    seed. Never waits for a device.
    """
    images, classes = batch.images, batch.targets.unsqueeze(1)  # (B, 3, H, W), (B, 1)
    targets = torch.zeros(len(classes), num_categories, device=classes.device).scatter_(
        1, classes, 1.0
    )
    random = Random(seed)
    if random.random() >= probability:
        return replace(batch, targets=targets)
    height, width = images.shape[2:]
    side = math.sqrt(random.random())
    rows, columns = round(height * side), round(width * side)
    top, left = random.randint(0, height - rows), random.randint(0, width - columns)
    box = (..., slice(top, top + rows), slice(left, left + columns))
    mixed = images.clone(memory_format=torch.preserve_format)
    mixed[box] = images[box].roll(
        1, dims=0
    )  # the order of a batch is random: any neighbour will do
    area = rows * columns / (height * width)
    return replace(
        batch, images=mixed, targets=targets * (1 - area) + targets.roll(1, dims=0) * area
    )


def read_for_training(
    directory: ImageDirectory, prepared: Preparation, seed: int, epoch: int, cache: Cache = NO_CACHE
) -> ImageRead:
    """Images as training sees them; an image's augmentation depends only on (seed, epoch, image)."""
    return ImageRead(
        directory, prepared, cache, functools.partial(derive_seed, seed, "augmentation", epoch)
    )


def read_for_inference(
    directory: ImageDirectory, framing: Framing, cache: Cache = NO_CACHE
) -> ImageRead:
    """Images as validation and scoring see them."""
    return ImageRead(directory, for_inference(framing), cache, lambda _: 0)
