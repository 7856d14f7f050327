"""The caches of a run: opened by the processes of a machine, which share one file.

Its sharers are those who have opened it, counted among themselves: each fills its own part.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from train_pytorch_model.data.cache import DecodeCache, SharedCache
from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.distributed.world import World
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES


@dataclass(frozen=True)
class DatasetCache:
    """The cache as one dataset uses it, whose images are numbered by row, starting at `first`."""

    images: DecodeCache | None = None  # None without a cache, or if only reader processes use it
    first: int = 0


NO_CACHE = DatasetCache()


@dataclass(frozen=True)
class Caches:
    """The caches of the two datasets; `shared` is for reader processes."""

    training: DatasetCache = NO_CACHE
    validation: DatasetCache = NO_CACHE
    shared: SharedCache | None = None
    hashes: np.ndarray = field(default_factory=lambda: np.empty((0, NUM_BYTES), np.uint8))
    """(N, 16), uint8: the perceptual hashes of all images by number, as far as they have been
    decoded on this machine; empty if there are none, or if another process of the machine has them.
    """
    features: memoryview | None = None  # the memory for features; None if they are not cached


NO_CACHES = Caches()


@contextmanager
def open_caches(plan: CachePlan, world: World) -> Iterator[Caches]:
    """Open the planned caches, for a `with`; collective.

    Without a file or address space, there are none.
    """
    with ExitStack() as stack:
        shared = _open_shared(plan, world, stack)
        caches = NO_CACHES
        if shared is not None:
            with suppress(OSError):
                caches = _map_caches(shared, plan)
        yield caches


def _map_caches(shared: SharedCache, plan: CachePlan) -> Caches:
    """Map the file of a machine's processes into this one. Raises `OSError`."""
    cache = DecodeCache(shared, plan.readers)  # with readers, only to read their hashes
    images = None if plan.readers else cache
    is_first = shared.process == 0
    return Caches(
        training=DatasetCache(images),
        validation=DatasetCache(images, first=plan.num_training),
        shared=shared if plan.readers else None,
        hashes=cache.hashes if is_first else cache.hashes[:0],
        features=cache.features if shared.plan.views else None,
    )


class _Offer(NamedTuple):
    """A file that the first of the processes that can share one has made for all of them."""

    path: str
    inode: int
    plan: CachePlan


class _Opened(NamedTuple):
    """An offered file, as this process has opened it."""

    file: int
    plan: CachePlan
    maker: int  # the rank of the process that has made it


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> SharedCache | None:
    """Open the cache that processes of a machine share; None without one, or if that fails.

    Its file has no name, and nothing of it outlives the run. The plan of the process that makes it
    counts.
    """
    if not hasattr(os, "memfd_create"):
        # macOS and Windows: each process fills a cache that nobody else sees.
        return None if plan.is_empty else SharedCache(-1, plan, process=0, num_processes=1)
    sharers = world.memory_sharers
    offer = None
    if world.rank == sharers[0] and not plan.is_empty:
        with suppress(OSError):
            offer = _make_file(plan, stack)
    offers = world.gather([offer])
    opened = _open_offered(offers[sharers[0]], sharers[0], stack)
    # Until all have told what they have opened, the first one keeps the file open.
    makers = world.gather([opened.maker if opened else None])
    if opened is None:
        return None
    users = [rank for rank, maker in enumerate(makers) if maker == opened.maker]
    return SharedCache(opened.file, opened.plan, users.index(world.rank), len(users))


def _open_offered(offer: _Offer | None, maker: int, stack: ExitStack) -> _Opened | None:
    """Open a file until the stack is closed; None without one, or if that fails."""
    if offer is None:
        return None
    with suppress(OSError):
        file = os.open(offer.path, os.O_RDWR)
        stack.callback(os.close, file)
        # Another container may have a process of that number.
        if os.fstat(file).st_ino == offer.inode:
            return _Opened(file, offer.plan, maker)
    return None


def _make_file(plan: CachePlan, stack: ExitStack) -> _Offer:
    """Make a file in memory that lives until the stack is closed. Raises `OSError`."""
    file = os.memfd_create("decoded images", os.MFD_CLOEXEC)
    stack.callback(os.close, file)
    os.ftruncate(file, plan.num_bytes)
    return _Offer(f"/proc/{os.getpid()}/fd/{file}", os.fstat(file).st_ino, plan)
