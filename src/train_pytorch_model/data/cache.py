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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import (
    UnreadableImageError,
    limit_size,
    read_size,
)
from train_pytorch_model.inputs.twins import MAX_HASHED, NUM_BYTES, perceptual_hash
from train_pytorch_model.machine.system import available_memory

if TYPE_CHECKING:
    from train_pytorch_model.data.preparation import Preparation
    from train_pytorch_model.distributed.world import World
    from train_pytorch_model.formats.image_directory import ImageDirectory

MEMORY_FRACTION = 1 / 4  # of the available memory, for all processes of a machine together
MIN_FRACTION = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all

Frame = Callable[[np.ndarray], np.ndarray]  # the pixels of a whole image → those of them to cache

CachedDecode = Callable[[int, Callable[[], np.ndarray], Frame], np.ndarray]
"""An image's number, `decode` and `frame` → `frame(decode())`, (H, W, 3), uint8, possibly
read-only: from the cache, or decoded now. Raises what `decode` raises."""


def uncached(_: int, decode: Callable[[], np.ndarray], frame: Frame) -> np.ndarray:
    """Decode without a cache."""
    return frame(decode())


@dataclass(frozen=True)
class Views:
    """The views of images whose features are computed once and kept (`features`)."""

    per_image: int  # 2 where training images may be mirrored, otherwise 1
    width: int  # features of a view
    itemsize: int  # bytes of a feature

    @property
    def num_bytes(self) -> int:
        """Of an image: its features, and whether each view is known."""
        return self.per_image * (self.width * self.itemsize + 1)


@dataclass(frozen=True)
class CachePlan:
    """How many bytes of decoded images are cached."""

    num_training: int  # rows of the dataset, some of which may be left out
    num_validation: int
    budget: int  # bytes, for all processes of the machine; 0 without a cache
    summary: str
    readers: int = 0  # reader processes per training process; 0 if it reads images itself
    views: Views | None = None

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation

    @property
    def is_hashed(self) -> bool:
        """Whether the file has a perceptual hash of each image, cached or not."""
        return self.num_images <= MAX_HASHED

    @property
    def features(self) -> range:
        """Where in the file features are."""
        start = (16 + NUM_BYTES * self.is_hashed) * self.num_images
        return range(start, start + (self.views.num_bytes * self.num_images if self.views else 0))

    @property
    def num_bytes(self) -> int:
        return self.features.stop + self.budget


def plan_cache(
    training: "tuple[ImageDirectory, Preparation]",
    validation: "tuple[ImageDirectory, Preparation]",
    epochs: int,
    readers: int = 0,
    views: Views | None = None,
) -> CachePlan:
    """Decide what is cached: features of `views` if all fit, then images, unless memory holds too
    few.
    """
    both = training, validation
    num_images = sum(len(images) for images, _ in both)
    wanted = sum(len(images) * _mean_bytes(images, prepared) for images, prepared in both)
    num_training, num_validation = (int(images.rows[-1]) + 1 for images, _ in both)
    off = CachePlan(num_training, num_validation, 0, "", readers)
    if epochs == 1:
        return replace(off, summary="each image once: there is one epoch")
    budget = int(available_memory() * MEMORY_FRACTION)
    if views and (num_bytes := views.num_bytes * off.num_images) <= budget:
        off, budget = replace(off, views=views), budget - num_bytes
        if views.per_image == 1:
            return replace(off, summary="each image once: its features are kept")
    fraction = budget / max(wanted, 1)
    if fraction < MIN_FRACTION:
        reason = (
            f"{memory_text(budget)} of memory would hold less than {MIN_FRACTION:.0%} of the images"
        )
        return replace(off, summary=f"in every epoch: {reason}")
    which = (
        f"about {int(num_images * fraction):,} of {num_images:,} images"
        if fraction < 1
        else "each image"
    )
    summary = f"{which} once, then cached ({memory_text(min(budget, wanted))} of memory)"
    return replace(off, budget=budget, summary=summary)


def _mean_bytes(images: "ImageDirectory", prepared: "Preparation") -> int:
    """Mean bytes to cache per image, estimated from a sample unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in evenly_spaced(len(images), SAMPLED).tolist():
        with suppress(UnreadableImageError):
            height, width = limit_size(read_size(images.path(index)), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def memory_text(num_bytes: int) -> str:
    """A number of bytes for people, in GiB or MiB."""
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"


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
