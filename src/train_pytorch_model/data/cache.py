"""A cache of decoded images, filled in the first epoch: later epochs read it instead of decoding
again.

It holds the pixels before any random augmentation (`preparation`), and no pixel depends on whether
there is a cache. The processes of a machine, and the reader processes of each, share a file in
memory:

    16 bytes per image        offset of its pixels in the file, 0 if it is not cached; height and width
    16 bytes per image        its perceptual hash, 0 until it is decoded for the first time
    features                  of a frozen backbone, if they are kept (`features`)
    pixels, writer by writer  each process fills its own part, and reads all parts

The file is sparse: an image takes memory only once it is cached. Decoder processes import this
module, which imports no PyTorch.
"""

import mmap
import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from train_pytorch_model.data.cache_plan import CachePlan
from train_pytorch_model.data.requests import CachedDecode, Frame, uncached
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES, perceptual_hash

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


@dataclass(frozen=True)
class SharedCache:
    """A file of cached images, as one of the processes that share it has opened it."""

    file: int  # the descriptor; -1 for memory of this process alone
    plan: CachePlan
    process: int  # the number, from 0, of this one of the machine's processes
    num_processes: int


class DecodeCache:
    """A `CachedDecode`. Thread-safe: at worst, an image that two threads decode at once is cached
    twice."""

    def __init__(self, shared: SharedCache, writer: int) -> None:
        """Map the file for a writer, counted from 0; any further one only reads.

        Raises `OSError`.
        """
        plan, count = shared.plan, shared.plan.num_images
        self._memory = mmap.mmap(shared.file, plan.num_bytes)
        self._offsets = np.frombuffer(self._memory, np.int64, count)
        sizes = np.frombuffer(self._memory, np.int32, 2 * count, offset=8 * count)
        self._sizes = sizes.reshape(-1, 2)  # (images, 2): height, width
        hashes = np.frombuffer(
            self._memory, np.uint8, NUM_BYTES * count * plan.is_hashed, offset=16 * count
        )
        self.hashes = hashes.reshape(-1, NUM_BYTES)  # (images, 16)
        self.features = memoryview(self._memory)[plan.features.start : plan.features.stop]
        self._lock = threading.Lock()
        num_writers = max(1, plan.readers)
        size = plan.budget // (num_writers * shared.num_processes) if writer < num_writers else 0
        self._next = plan.features.stop + (shared.process * num_writers + writer) * size
        self._end = self._next + size

    def __call__(self, number: int, decode: Callable[[], np.ndarray], frame: Frame) -> np.ndarray:
        if offset := int(self._offsets[number]):
            height, width = self._sizes[number].tolist()
            cached = self._view(offset, height, width)
            cached.flags.writeable = False
            return cached
        whole = decode()
        if len(self.hashes) and not self.hashes[number].any():
            self.hashes[number] = perceptual_hash(whole)
        pixels = frame(whole)
        with self._lock:
            offset = self._next if self._next + pixels.nbytes <= self._end else 0
            self._next += pixels.nbytes if offset else 0
        if offset:
            height, width, _ = pixels.shape
            self._view(offset, height, width)[:] = pixels
            self._sizes[number] = height, width
            # Last, and in one write. Other processes read the image in a later pass, after
            # synchronizing.
            self._offsets[number] = offset
        return pixels

    def _view(self, offset: int, height: int, width: int) -> np.ndarray:
        return np.frombuffer(self._memory, np.uint8, height * width * 3, offset).reshape(
            height, width, 3
        )


@dataclass(frozen=True)
class Cache:
    """The cache of one dataset, whose images are numbered by row, starting at `first`."""

    remember: CachedDecode = uncached
    first: int = 0


NO_CACHE = Cache()


@dataclass(frozen=True)
class Caches:
    """The caches of the two datasets; `shared` is for reader processes."""

    training: Cache = NO_CACHE
    validation: Cache = NO_CACHE
    shared: SharedCache | None = None
    hashes: np.ndarray = field(default_factory=lambda: np.empty((0, NUM_BYTES), np.uint8))
    """(N, 16), uint8: the perceptual hashes of all images by number, as far as they have been
    decoded on this machine; empty if there are none, or if another process of the machine has them.
    """
    features: memoryview | None = None  # where features are kept; None if they are not


NO_CACHES = Caches()


@contextmanager
def open_caches(plan: CachePlan, world: "World") -> Iterator[Caches]:
    """Open the planned caches, for a `with`; collective.

    Without a file or address space, there are none.
    """
    with ExitStack() as stack:
        caches, shared = NO_CACHES, _open_shared(plan, world, stack)
        if shared is not None:
            with suppress(OSError):
                remember = DecodeCache(
                    shared, plan.readers
                )  # with readers, only to read their hashes
                is_first = shared.file < 0 or shared.process == 0  # of the processes that share it
                own = uncached if plan.readers else remember
                caches = Caches(
                    training=Cache(own),
                    validation=Cache(own, first=plan.num_training),
                    shared=shared if plan.readers else None,
                    hashes=remember.hashes if is_first else remember.hashes[:0],
                    features=remember.features if shared.plan.views else None,
                )
        yield caches


def _open_shared(plan: CachePlan, world: "World", stack: ExitStack) -> SharedCache | None:
    """The cache shared by all processes of a machine; None without one, or if it cannot be opened.

    Its file has no name, and nothing of it outlives the run. The plan of a machine's first process
    counts.
    """
    is_empty = not (plan.budget or plan.is_hashed or plan.views)
    if not hasattr(
        os, "memfd_create"
    ):  # macOS and Windows: each process fills a cache that nobody else sees
        return None if is_empty else SharedCache(-1, plan, world.local_rank, world.local_size)
    machine, offer, cache = socket.gethostname(), None, None
    if world.local_rank == 0 and not is_empty:
        with suppress(OSError):
            made = os.memfd_create("decoded images", os.MFD_CLOEXEC)
            stack.callback(os.close, made)
            os.ftruncate(made, plan.num_bytes)
            offer = f"/proc/{os.getpid()}/fd/{made}", os.fstat(made).st_ino, plan
    for host, offered in world.gather([(machine, offer)]):
        if host == machine and offered is not None:
            path, inode, its_plan = offered
            with suppress(OSError):
                file = os.open(path, os.O_RDWR)
                stack.callback(os.close, file)
                if (
                    os.fstat(file).st_ino == inode
                ):  # or another container has a process of that number
                    cache = SharedCache(file, its_plan, world.local_rank, world.local_size)
    world.barrier()  # until then, the first process keeps the file open
    return cache
