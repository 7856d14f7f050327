"""Whether and where decoded images are cached: planned before a run, and opened for it."""

import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.data.decode_cache import (
    MIN_CHUNK,
    NO_CACHES,
    Cache,
    CachedDecode,
    Caches,
    SharedCache,
    chunk_for,
    index_bytes,
    private_cache,
    uncached,
)
from train_pytorch_model.data.preparation import Preparation
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, bounded, read_size
from train_pytorch_model.machine.memory import available_memory
from train_pytorch_model.machine.sealed_file import sealed_file

MEMORY_SHARE = 1 / 4  # of the available memory, for all processes of a machine together
FREE_SHARE = 1 / 2  # of a file system's free space: others need some, too
MIN_SHARE = 0.05  # of the images: caching fewer is not worth it
SAMPLED = 32  # images whose headers are read to estimate the size of all
SLACK = 1.1  # the sampled images may be smaller than the rest, and chunks are not filled to the end

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
    min_chunk: int = MIN_CHUNK
    """Minimum bytes that a writer reserves at once, if its share of the budget allows."""

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation


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
    decoded = len(trained) + len(validated)
    trained_bytes, validated_bytes = _mean_bytes(*training), _mean_bytes(*validation)
    chunk = chunk_for(max(trained_bytes, validated_bytes))
    wanted = len(trained) * trained_bytes + len(validated) * validated_bytes
    off = CachePlan(_num_rows(trained), _num_rows(validated), 0, None, "", readers, chunk)
    if epochs == 1:
        return replace(off, summary="each image once: there is one epoch")
    budget, folder = int(available_memory() * MEMORY_SHARE), None
    if readers or world.local_size > 1:  # files reserve space chunk by chunk, ahead of the images
        most = len(trained) * _most_bytes(training[1], trained_bytes)
        most += len(validated) * _most_bytes(validation[1], validated_bytes)
        budget = min(budget, most + 2 * world.local_size * max(1, readers) * chunk)
    if world.local_size > 1:
        rooms = [(min(budget, _usable(path)), path) for path in shared_folders()]
        budget, folder = max(rooms, key=lambda room: room[0])  # the first one on a tie
    place = str(folder or "memory")
    share = budget / max(wanted, 1)
    if share < MIN_SHARE:
        reason = f"{_text(budget)} of {place} would hold less than {MIN_SHARE:.0%} of the images"
        return replace(off, summary=f"in every epoch: {reason}")
    if share >= 1:
        summary = f"each image once, then cached ({_text(wanted)} of {place})"
    else:
        kept = int(decoded * share)
        summary = f"about {kept:,} of {decoded:,} images once, then cached ({_text(budget)} of {place})"
    return replace(off, budget=budget, folder=folder, summary=summary)


@contextmanager
def open_caches(plan: CachePlan, world: World) -> Iterator[Caches]:
    """Open the planned caches, for a `with`; a collective operation of all processes."""
    with ExitStack() as stack:
        # A process alone on its machine shares with nobody, but takes part in the collectives.
        opened = _open_shared(plan, world, stack) if world.size > 1 else None
        if world.local_size == 1:
            if plan.budget and not plan.readers:
                yield _caches(plan, private_cache(plan.num_images, plan.budget, plan.min_chunk))
                return
            opened = _open_unnamed(plan, stack) if plan.budget else None
        if opened is None:
            yield NO_CACHES
            return
        cache, files = opened
        if plan.readers:
            yield replace(_caches(plan, uncached), shared=cache, files=files)
        else:
            yield _caches(plan, cache.opened(files, 0))


def _caches(plan: CachePlan, remember: CachedDecode) -> Caches:
    return Caches(Cache(remember), Cache(remember, first=plan.num_training))


def _open_unnamed(plan: CachePlan, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache shared by the readers of one process; None if its files cannot be created."""
    files: list[int] = []
    try:
        for number, size in enumerate([index_bytes(plan.num_images)] + [0] * plan.readers):
            files.append(sealed_file(f"decoded images {number}", size))
            stack.callback(os.close, files[-1])
    except OSError:
        return None
    return SharedCache(plan.num_images, plan.readers, plan.budget, 0, plan.readers, plan.min_chunk), files


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache shared by all processes of a machine; None without one, or if any of them cannot open it."""
    is_first_of_several = world.local_rank == 0 and world.local_size > 1
    own_folder = _make_files(plan, world) if is_first_of_several else ""
    machine, opened = socket.gethostname(), None
    try:
        offers = world.gather([(machine, own_folder, plan)])
        offered = [(folder, plan) for host, folder, plan in offers if host == machine and folder]
        with suppress(OSError):
            if len(offered) == 1:  # by this machine's main process, whose plan counts
                opened = _open_files(Path(offered[0][0]), offered[0][1], world, stack)
        are_open = world.gather([(machine, opened is not None)])  # from here on, the names are not needed
    finally:
        if own_folder:
            shutil.rmtree(own_folder, ignore_errors=True)
    return opened if all(is_open for host, is_open in are_open if host == machine) else None


def _make_files(plan: CachePlan, world: World) -> str:
    if plan.budget == 0 or plan.folder is None:
        return ""
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="train_pytorch_model-", dir=plan.folder)
        for name in ("index", *map(str, range(world.local_size * max(1, plan.readers)))):
            (Path(folder) / name).touch(mode=0o600)
        with (Path(folder) / "index").open("wb") as index:
            os.posix_fallocate(index.fileno(), 0, index_bytes(plan.num_images))
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)
        return ""
    return folder


def _open_files(
    folder: Path, plan: CachePlan, world: World, stack: ExitStack
) -> tuple[SharedCache, list[int]]:
    own = max(1, plan.readers)
    files = []
    for name in ("index", *map(str, range(world.local_size * own))):
        files.append(os.open(folder / name, os.O_RDWR))
        stack.callback(os.close, files[-1])
    first = world.local_rank * own
    return SharedCache(
        plan.num_images, world.local_size * own, plan.budget, first, own, plan.min_chunk
    ), files


def _num_rows(directory: ImageDirectory) -> int:
    return int(directory.rows[-1]) + 1


def _mean_bytes(directory: ImageDirectory, prepared: Preparation) -> int:
    """Mean bytes to cache per image, estimated from a sample unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in np.linspace(0, len(directory) - 1, min(SAMPLED, len(directory)), dtype=np.int64):
        with suppress(UnreadableImageError):
            height, width = bounded(read_size(directory.path(int(index))), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def _most_bytes(prepared: Preparation, mean_bytes: int) -> int:
    """Upper estimate of the mean bytes to cache per image: the framed size, or the mean plus slack."""
    return int(mean_bytes * SLACK) if prepared.kept is None else prepared.kept.num_pixels * 3


def _usable(path: Path) -> int:
    if not hasattr(os, "posix_fallocate"):  # macOS and Windows
        return 0
    try:
        status = os.statvfs(path)
    except OSError:
        return 0
    return int(status.f_bavail * status.f_frsize * FREE_SHARE) if os.access(path, os.W_OK) else 0


def _text(num_bytes: int) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
