"""How many decoded images and features are cached: planned before a run, and opened for it."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

import numpy as np

from train_pytorch_model.data.decode_cache import NO_CACHES, Cache, Caches, SharedCache
from train_pytorch_model.data.preparation import Preparation
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, limit_size, read_size
from train_pytorch_model.inputs.perceptual_hash import MAX_HASHED, NUM_BYTES
from train_pytorch_model.machine.memory import available_memory

MEMORY_FRACTION = 1 / 4  # of the available memory, for all processes of a machine together
MIN_FRACTION = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all

Prepared = tuple[ImageDirectory, Preparation]
"""A dataset, and how its images are prepared."""


@dataclass(frozen=True)
class Views:
    """The views of images whose features are computed once and kept (`features`)."""

    per_image: int
    """2 where training images may be mirrored, otherwise 1."""
    width: int
    """Features of a view."""
    itemsize: int
    """Bytes of a feature."""

    @property
    def num_bytes(self) -> int:
        """Of an image: its features, and whether each view is known."""
        return self.per_image * (self.width * self.itemsize + 1)


@dataclass(frozen=True)
class CachePlan:
    """How many bytes of decoded images are cached."""

    num_training: int
    """Rows of the training dataset."""
    num_validation: int
    budget: int
    """Bytes, for all processes of the machine; 0 without a cache."""
    summary: str
    """Human-readable."""
    readers: int = 0
    """Reader processes per training process; 0 if it reads images itself."""
    views: Views | None = None
    """None if no features are kept."""

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation

    @property
    def is_hashed(self) -> bool:
        """Whether the file has a perceptual hash of each image, cached or not."""
        return self.num_images <= MAX_HASHED

    @property
    def num_bytes(self) -> int:
        """Of the file: an index, in which 16 bytes locate an image, hashes, features, and the pixels."""
        return (16 + NUM_BYTES * self.is_hashed) * self.num_images + self.num_feature_bytes + self.budget

    @property
    def num_feature_bytes(self) -> int:
        return self.views.num_bytes * self.num_images if self.views else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept of any image."""
        return not (self.budget or self.is_hashed or self.views)


def plan_cache(
    training: Prepared, validation: Prepared, epochs: int, readers: int = 0, views: Views | None = None
) -> CachePlan:
    """Decide what is cached: nothing for a single epoch, or if memory holds too few of the images.

    Features of `views` are kept if all of them fit; what they leave is for images.
    """
    (trained, _), (validated, _) = training, validation
    num_images = len(trained) + len(validated)
    wanted = len(trained) * _mean_bytes(*training) + len(validated) * _mean_bytes(*validation)
    off = CachePlan(_num_rows(trained), _num_rows(validated), 0, "", readers)
    if epochs == 1:
        return replace(off, summary="each image once: there is one epoch")
    budget = int(available_memory() * MEMORY_FRACTION)
    if views and (off_with := replace(off, views=views)).num_feature_bytes <= budget:
        off, budget = off_with, budget - off_with.num_feature_bytes
        if views.per_image == 1:
            return replace(off, summary="each image once: its features are kept")
    fraction = budget / max(wanted, 1)
    if fraction < MIN_FRACTION:
        reason = f"{memory_text(budget)} of memory would hold less than {MIN_FRACTION:.0%} of the images"
        return replace(off, summary=f"in every epoch: {reason}")
    if fraction >= 1:
        summary = f"each image once, then cached ({memory_text(wanted)} of memory)"
    else:
        cached = int(num_images * fraction)
        summary = (
            f"about {cached:,} of {num_images:,} images once, then cached ({memory_text(budget)} of memory)"
        )
    return replace(off, budget=budget, summary=summary)


@contextmanager
def open_caches(plan: CachePlan, world: World) -> Iterator[Caches]:
    """Open the planned caches, for a `with`; a collective operation of all processes."""
    with ExitStack() as stack:
        yield _caches(plan, _open_shared(plan, world, stack))


def _caches(plan: CachePlan, shared: SharedCache | None) -> Caches:
    if shared is None:
        return NO_CACHES
    try:
        remember = shared.open(plan.readers)  # with readers, only to read their hashes
    except OSError:  # not even address space for it
        return NO_CACHES
    is_first = shared.file < 0 or shared.first_writer == 0  # of the processes that share it
    hashes = remember.hashes if is_first else remember.hashes[:0]
    if plan.readers:
        training, validation = Cache(), Cache(first=plan.num_training)
    else:
        training, validation = Cache(remember), Cache(remember, first=plan.num_training)
    features = remember.features if shared.num_feature_bytes else None
    return Caches(training, validation, shared if plan.readers else None, hashes, features)


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> SharedCache | None:
    """The cache shared by all processes of a machine; None without one, or if it cannot be opened."""
    if not hasattr(os, "memfd_create"):  # macOS and Windows: each process fills a cache that nobody else sees
        return None if plan.is_empty else _shared_cache(-1, plan, world)
    machine, cache = socket.gethostname(), None
    offer = None
    if world.local_rank == 0 and not plan.is_empty:
        with suppress(OSError):
            offer = _make_file(plan, stack)
    for host, offered in world.gather([(machine, offer)]):
        if host == machine and offered is not None:
            with suppress(OSError):
                cache = _open_file(offered, world, stack)
    world.barrier()  # until then, the first process keeps the file open
    return cache


@dataclass(frozen=True)
class _Offer:
    """A file in the memory of a machine's first process, whose plan counts."""

    path: str
    inode: int
    plan: CachePlan


def _make_file(plan: CachePlan, stack: ExitStack) -> _Offer:
    """A file without a name, of which only what is written takes memory; nothing of it outlives the run."""
    file = os.memfd_create("decoded images", os.MFD_CLOEXEC)
    stack.callback(os.close, file)
    os.ftruncate(file, plan.num_bytes)
    return _Offer(f"/proc/{os.getpid()}/fd/{file}", os.fstat(file).st_ino, plan)


def _open_file(offer: _Offer, world: World, stack: ExitStack) -> SharedCache | None:
    file = os.open(offer.path, os.O_RDWR)
    stack.callback(os.close, file)
    is_same = os.fstat(file).st_ino == offer.inode  # or another container has a process of that number
    return _shared_cache(file, offer.plan, world) if is_same else None


def _shared_cache(file: int, plan: CachePlan, world: World) -> SharedCache:
    writers = max(1, plan.readers)  # of each process
    first = world.local_rank * writers
    num_writers = world.local_size * writers
    return SharedCache(
        file,
        plan.num_images,
        plan.num_bytes,
        plan.is_hashed,
        num_writers,
        first,
        own_writers=writers,
        num_feature_bytes=plan.num_feature_bytes,
    )


def _num_rows(directory: ImageDirectory) -> int:
    return int(directory.rows[-1]) + 1


def _mean_bytes(directory: ImageDirectory, prepared: Preparation) -> int:
    """Mean bytes to cache per image, estimated from a sample unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in evenly_spaced(len(directory), SAMPLED).tolist():
        with suppress(UnreadableImageError):
            height, width = limit_size(read_size(directory.path(index)), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def memory_text(num_bytes: int) -> str:
    """A number of bytes for people, in GiB or MiB."""
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
