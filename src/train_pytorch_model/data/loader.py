"""Batches of pixels: planned, the same on every process; prepared in threads; mixed by CutMix."""

import functools
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.config.seeds import derive_seed
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cache import NO_CACHE, Cache
from train_pytorch_model.data.decoder_processes import Decoders, fill
from train_pytorch_model.data.epoch_plan import PlannedBatch
from train_pytorch_model.data.preparation import Preparation, __name__, for_inference
from train_pytorch_model.data.requests import ImageRequest
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.pixels import Decode, Pixels
from train_pytorch_model.image_classifier.spec import Framing

Read = Callable[
    [int, Decode], Pixels
]  # index, decoder → pixels of one size; raises `UnreadableImageError`

PREFETCHED_BATCHES = 4  # in preparation or ready, ahead of the one in use
# Images per request to a process: the threads that wait for it, and hinder each other, wake up less
# often.
MAX_GROUP = 8
MIN_GROUPS = 4  # of a batch, so that it is ready soon


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
    return closing(Decoders([__name__] if num_readers(world) else []))


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
        unreadable = {
            int(index): why for index, why in zip(indices, reasons, strict=True) if why is not None
        }
        if unreadable:
            good = np.flatnonzero([reason is None for reason in reasons])
            pixels, indices = pixels[torch.from_numpy(good)], indices[good]
        return Batch(
            images=pixels.permute(0, 3, 1, 2),
            targets=torch.from_numpy(pending.class_indices[indices].astype(np.int64)),
            indices=indices,
            global_count=pending.planned.global_count,
            unreadable=unreadable,
        )


@dataclass(frozen=True)
class _PendingBatch:
    planned: PlannedBatch
    slots: Tensor  # (B, H, W, 3), uint8
    class_indices: np.ndarray
    futures: Sequence[Future[list[str | None]]]


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
