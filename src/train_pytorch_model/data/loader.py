"""Batches of pixels, prepared ahead of time in threads and processes."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.data import preparation
from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.dataset import EpochPlan, ImageDataset
from train_pytorch_model.data.decoders import Decoders, fill
from train_pytorch_model.data.epoch_plan import PlannedBatch
from train_pytorch_model.distributed.world import World

PREFETCHED_BATCHES = 4  # in preparation or ready, ahead of the one in use
# Images per request to a process: the threads that wait for it, and hinder each other, wake up less
# often.
MAX_GROUP = 8
MIN_GROUPS = 4  # of a batch, so that it is ready soon


def num_readers(world: World) -> int:
    """Return the number of reader processes per training process: none but for a GPU.

    A GPU needs thousands of images a second.
    """
    return world.cores if world.device.type == "cuda" and hasattr(os, "memfd_create") else 0


def start_decoders(world: World) -> AbstractContextManager[Decoders]:
    """Start the decoder processes of a training process, for a `with`.

    For a GPU they import PyTorch as well.
    """
    return closing(Decoders([preparation.__name__] if num_readers(world) else []))


def start_readers(world: World) -> AbstractContextManager[Decoders | None]:
    """Start the reader processes, for a `with`; None if threads prepare the images."""
    return start_decoders(world) if num_readers(world) else nullcontext()


class Loader:
    """Prepares planned batches ahead of time, in threads that each have a process.

    By default the process decodes and the thread does the rest, so that an image is written once,
    into its slot in the batch. To feed a GPU, the process does everything, for several images at
    once.
    """

    def __init__(self, threads: int, readers: Decoders | None = None) -> None:
        """With `readers` (`start_readers`), these do everything; the loader does not end them."""
        self._threads = threads
        self._readers = readers
        self._decoders = readers or Decoders()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._prefetched = _Prefetched()
        self.waited_s = 0.0  # by whoever takes the batches

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._readers is None:
            self._decoders.close()

    def batches(
        self, plan: EpochPlan, following: Callable[[], EpochPlan | None] = lambda: None
    ) -> Iterator[Batch]:
        """Yield the batches of a plan.

        While the last ones are in use, the first ones of the `following` plan are prepared.
        """
        pending = self._take_prefetched(plan.key)
        num_ahead = self._num_ahead(plan)
        for planned in plan.batches[len(pending) :]:
            pending.append(self._start(planned, plan))
            if len(pending) > num_ahead:
                yield self._finish(pending.popleft())

        next_plan = following() if pending else None
        prefetched: deque[_PendingBatch] = deque()
        if next_plan is not None:
            self._prefetched = _Prefetched(next_plan.key, prefetched)
        while pending:
            if next_plan is not None and len(prefetched) < len(next_plan.batches):
                prefetched.append(self._start(next_plan.batches[len(prefetched)], next_plan))
            yield self._finish(pending.popleft())

    def _take_prefetched(self, key: str) -> "deque[_PendingBatch]":
        """Return the batches that are prefetched of the plan with this key; cancel any others."""
        prefetched = self._prefetched
        self._prefetched = _Prefetched()
        if prefetched.key == key:
            return prefetched.pending
        for batch in prefetched.pending:
            for future in batch.futures:
                future.cancel()
        return deque()

    def _num_ahead(self, plan: EpochPlan) -> int:
        """Return how many batches to prepare ahead of the one in use.

        Four batches of two images do not fill 16 threads.
        """
        largest = len(plan.batches[0].indices) if plan.batches else 1  # no other is larger
        images = 2 * self._threads * self._group_size(largest)
        return max(PREFETCHED_BATCHES, -(-images // max(1, largest)))

    def _group_size(self, batch_size: int) -> int:
        """Return how many images a thread prepares per task."""
        if self._readers is None:
            return 1
        return max(1, min(MAX_GROUP, batch_size // MIN_GROUPS))

    def _start(self, planned: PlannedBatch, plan: EpochPlan) -> "_PendingBatch":
        """Have the threads fill the slots of a batch, in memory from which a GPU can copy."""
        indices = planned.indices
        shape = (len(indices), plan.framing.height, plan.framing.width, 3)
        slots = torch.empty(shape, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        size = self._group_size(len(indices))
        groups = [slice(start, start + size) for start in range(0, len(indices), size)]
        futures = [
            self._pool.submit(self._fill, slots[group].numpy(), indices[group], plan.dataset)
            for group in groups
        ]
        return _PendingBatch(planned, slots, plan.dataset, futures)

    def _fill(
        self, slots: np.ndarray, indices: np.ndarray, dataset: ImageDataset
    ) -> list[str | None]:
        """Fill slots (N, H, W, 3) with the images at N indices; return what `fill` does."""
        if self._readers is not None:
            requests = [dataset.request(int(index)) for index in indices]
            return self._readers.prepare(dataset.preparation, requests, slots)
        decode = self._decoders.decode
        return fill(slots, (partial(dataset.read, int(index), decode) for index in indices))

    def _finish(self, pending: "_PendingBatch") -> Batch:
        """Wait for the images, and leave out those that cannot be read."""
        started_at = time.perf_counter()
        reasons = [reason for future in pending.futures for reason in future.result()]
        self.waited_s += time.perf_counter() - started_at

        pixels = pending.slots
        indices = pending.planned.indices
        unreadable = {
            int(index): reason
            for index, reason in zip(indices, reasons, strict=True)
            if reason is not None
        }
        if unreadable:
            readable = np.flatnonzero([reason is None for reason in reasons])
            pixels = pixels[torch.from_numpy(readable)]
            indices = indices[readable]
        return Batch(
            images=pixels.permute(0, 3, 1, 2),
            targets=pending.dataset.targets(indices),
            indices=indices,
            global_count=pending.planned.global_count,
            unreadable=unreadable,
        )


@dataclass(frozen=True)
class _PendingBatch:
    """A batch that threads are preparing."""

    planned: PlannedBatch
    slots: Tensor  # (B, H, W, 3), uint8
    dataset: ImageDataset
    futures: Sequence[Future[list[str | None]]]


@dataclass(frozen=True)
class _Prefetched:
    """The first batches of a plan that has not begun."""

    key: str = ""
    pending: deque[_PendingBatch] = field(default_factory=deque)
