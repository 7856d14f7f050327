"""Whether and where decoded images are cached: planned before a run, and opened for it."""

import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.data.decode_cache import NO_CACHES, RESERVED, Cache, Caches, SharedCache
from train_pytorch_model.data.preparation import Preparation
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, limit_size, read_size
from train_pytorch_model.machine.memory import available_memory

MEMORY_FRACTION = 1 / 4  # of the available memory, for all processes of a machine together
FREE_FRACTION = 1 / 2  # of a file system's free space: others need some, too
MIN_FRACTION = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all
SLACK = 1.1  # the sampled images may be smaller than the rest

Prepared = tuple[ImageDirectory, Preparation]
"""A dataset, and how its images are prepared."""


@dataclass(frozen=True)
class CachePlan:
    """How many bytes of decoded images are cached, and where."""

    num_training: int
    """Rows of the training dataset."""
    num_validation: int
    budget: int
    """Bytes, for all processes of the machine; 0 without a cache."""
    folder: Path | None
    """The folder of the files that training processes share; None to cache in memory."""
    summary: str
    """Human-readable."""
    readers: int = 0
    """Reader processes per training process; 0 if it reads images itself."""

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation

    @property
    def num_bytes(self) -> int:
        """Of the file: an index, in which 16 bytes locate an image, and the pixels."""
        return 16 * self.num_images + self.budget


def shared_folders() -> tuple[Path, ...]:
    """Folders for files shared by the processes of a machine, in order of preference."""
    return Path("/dev/shm"), Path(tempfile.gettempdir())


def plan_cache(
    training: Prepared,
    validation: Prepared,
    epochs: int,
    world: World,
    readers: int = 0,
) -> CachePlan:
    """Decide what is cached: nothing for a single epoch, or if memory holds too few of the images."""
    (trained, _), (validated, _) = training, validation
    num_images = len(trained) + len(validated)
    wanted = len(trained) * _mean_bytes(*training) + len(validated) * _mean_bytes(*validation)
    off = CachePlan(_num_rows(trained), _num_rows(validated), 0, None, "", readers)
    if epochs == 1:
        return replace(off, summary="each image once: there is one epoch")
    budget, folder = int(available_memory() * MEMORY_FRACTION), None
    if world.local_size > 1:
        needed = int(wanted * SLACK) + world.local_size * max(1, readers) * RESERVED
        free = {path: min(budget, _usable(path)) for path in shared_folders()}
        folder = max(free, key=lambda path: min(needed, free[path]))  # the first that holds all
        budget = free[folder]
    where = str(folder or "memory")
    fraction = budget / max(wanted, 1)
    if fraction < MIN_FRACTION:
        reason = f"{_text(budget)} of {where} would hold less than {MIN_FRACTION:.0%} of the images"
        return replace(off, summary=f"in every epoch: {reason}")
    if fraction >= 1:
        summary = f"each image once, then cached ({_text(wanted)} of {where})"
    else:
        cached = int(num_images * fraction)
        summary = f"about {cached:,} of {num_images:,} images once, then cached ({_text(budget)} of {where})"
    return replace(off, budget=budget, folder=folder, summary=summary)


@contextmanager
def open_caches(plan: CachePlan, world: World) -> Iterator[Caches]:
    """Open the planned caches, for a `with`; a collective operation of all processes."""
    with ExitStack() as stack:
        # A process alone on its machine shares with nobody, but takes part in the collectives.
        shared = _open_shared(plan, world, stack) if world.size > 1 else None
        if world.local_size == 1 and plan.budget:
            shared = _shared_cache(_unnamed_file(plan, stack), plan, world)
        yield _caches(plan, shared)


def _caches(plan: CachePlan, shared: SharedCache | None) -> Caches:
    if shared is None:
        return NO_CACHES
    if plan.readers:
        return Caches(validation=Cache(first=plan.num_training), shared=shared)
    try:
        remember = shared.open(0)
    except OSError:  # not even address space for it
        return NO_CACHES
    return Caches(Cache(remember), Cache(remember, first=plan.num_training))


def _unnamed_file(plan: CachePlan, stack: ExitStack) -> int:
    """A file in memory for a process alone on its machine and its readers; -1 if it has none."""
    if plan.readers == 0:
        return -1
    file = os.memfd_create("decoded images", os.MFD_CLOEXEC)
    stack.callback(os.close, file)
    os.ftruncate(file, plan.num_bytes)
    return file


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> SharedCache | None:
    """The cache shared by all processes of a machine; None without one, or if it cannot be opened.

    The file is unlinked as soon as all have opened it, so that nothing remains of a run, however it ends.
    """
    is_first_of_several = world.local_rank == 0 and world.local_size > 1
    path = _make_file(plan) if is_first_of_several else None
    machine, cache = socket.gethostname(), None
    try:
        for host, offered, its_plan in world.gather([(machine, path, plan)]):
            with suppress(OSError):
                if host == machine and offered is not None:  # the plan of a machine's first process counts
                    cache = _open_file(offered, its_plan, world, stack)
        world.barrier()  # from here on, the name is not needed
    finally:
        if path is not None:
            path.unlink(missing_ok=True)
    return cache


def _make_file(plan: CachePlan) -> Path | None:
    """A file for the cache, in which only the index takes space; None without a plan, or if that fails."""
    if plan.budget == 0 or plan.folder is None:
        return None
    try:
        file, path = tempfile.mkstemp(prefix="train_pytorch_model-", dir=plan.folder)
    except OSError:
        return None
    try:
        os.ftruncate(file, plan.num_bytes)
        os.posix_fallocate(file, 0, 16 * plan.num_images)
    except OSError:
        Path(path).unlink()
        return None
    finally:
        os.close(file)
    return Path(path)


def _open_file(path: Path, plan: CachePlan, world: World, stack: ExitStack) -> SharedCache:
    file = os.open(path, os.O_RDWR)
    stack.callback(os.close, file)
    return _shared_cache(file, plan, world)


def _shared_cache(file: int, plan: CachePlan, world: World) -> SharedCache:
    writers = max(1, plan.readers)  # of each process
    first = world.local_rank * writers
    return SharedCache(file, plan.num_images, plan.num_bytes, world.local_size * writers, first, writers)


def _num_rows(directory: ImageDirectory) -> int:
    return int(directory.rows[-1]) + 1


def _mean_bytes(directory: ImageDirectory, prepared: Preparation) -> int:
    """Mean bytes to cache per image, estimated from a sample unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in np.linspace(0, len(directory) - 1, min(SAMPLED, len(directory)), dtype=np.int64):
        with suppress(UnreadableImageError):
            height, width = limit_size(read_size(directory.path(int(index))), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def _usable(path: Path) -> int:
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        return 0
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return int(status.f_bavail * status.f_frsize * FREE_FRACTION) if os.access(path, os.W_OK) else 0


def _text(num_bytes: int) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
