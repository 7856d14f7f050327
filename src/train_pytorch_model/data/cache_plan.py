"""Which decoded images are kept, and where: decided before a run, and opened for it."""

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
    Caches,
    Remember,
    SharedCache,
    chunk_for,
    every_time,
    index_bytes,
    private_cache,
)
from train_pytorch_model.data.preparation import Preparation
from train_pytorch_model.distributed import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, bounded, read_size
from train_pytorch_model.machine.memory import available_memory
from train_pytorch_model.machine.sealed_file import sealed_file

MEMORY_SHARE = 1 / 4  # of what is available, for all processes of a machine together
FREE_SHARE = 1 / 2  # of a file system: others need room there, too
MIN_SHARE = 0.05  # of the images: fewer are not worth it
SAMPLED = 32  # images whose headers tell the size of all
SLACK = 1.1  # the sample may be of smaller images than the rest, and chunks are not filled to the end

Prepared = tuple[ImageDirectory, Preparation]
"""A dataset, and what is done to its images."""


@dataclass(frozen=True)
class CachePlan:
    """How much is kept, and where."""

    num_training: int
    """Rows of the training dataset."""
    num_validation: int
    budget: int
    """Bytes, of all processes of the machine; 0 where nothing is kept."""
    folder: Path | None
    """Of the files that processes share; None for memory of one process."""
    summary: str
    """For people."""
    readers: int = 0
    """Processes that read images for each one that trains; 0 where it does so itself."""
    min_chunk: int = MIN_CHUNK
    """Bytes that a writer takes at once, if there are as many."""

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation


def shared_folders() -> tuple[Path, ...]:
    """Where the processes of a machine can keep files together, the better first."""
    return Path("/dev/shm"), Path(tempfile.gettempdir())


def plan_cache(
    training: Prepared,
    validation: Prepared,
    epochs: int,
    world: World,
    readers: int = 0,
) -> CachePlan:
    """Whether images are kept: where there are epochs to come, and memory for a good part of the images."""
    (trained, _), (validated, _) = training, validation
    decoded = len(trained) + len(validated)
    trained_bytes, validated_bytes = _mean_bytes(*training), _mean_bytes(*validation)
    chunk = chunk_for(max(trained_bytes, validated_bytes))
    wanted = len(trained) * trained_bytes + len(validated) * validated_bytes
    off = CachePlan(_num_rows(trained), _num_rows(validated), 0, None, "", readers, chunk)
    if epochs == 1:
        return replace(off, summary="every image once: there is one epoch")
    budget, folder = int(available_memory() * MEMORY_SHARE), None
    if readers or world.local_size > 1:  # files take room chunk by chunk, before there are images for it
        most = len(trained) * _most_bytes(training[1], trained_bytes)
        most += len(validated) * _most_bytes(validation[1], validated_bytes)
        budget = min(budget, most + 2 * world.local_size * max(1, readers) * chunk)
    if world.local_size > 1:
        rooms = [(min(budget, _usable(path)), path) for path in shared_folders()]
        budget, folder = max(rooms, key=lambda room: room[0])  # the first of equals
    place = str(folder or "memory")
    share = budget / max(wanted, 1)
    if share < MIN_SHARE:
        reason = f"{_text(budget)} of {place} would hold less than {MIN_SHARE:.0%} of the images"
        return replace(off, summary=f"in every epoch: {reason}")
    if share >= 1:
        summary = f"every image once, then from {_text(wanted)} of {place}"
    else:
        kept = int(decoded * share)
        summary = f"about {kept:,} of {decoded:,} images once, as {_text(budget)} of {place} hold no more"
    return replace(off, budget=budget, folder=folder, summary=summary)


@contextmanager
def open_caches(plan: CachePlan, world: World) -> Iterator[Caches]:
    """What was planned, for a `with`; all processes together."""
    with ExitStack() as stack:
        # One that is alone on its machine has nobody to share with, but the others wait for its word.
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
            yield replace(_caches(plan, every_time), shared=cache, files=files)
        else:
            yield _caches(plan, cache.opened(files, 0))


def _caches(plan: CachePlan, remember: Remember) -> Caches:
    return Caches(Cache(remember), Cache(remember, first=plan.num_training))


def _open_unnamed(plan: CachePlan, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache of the readers of one process; None where there is no room."""
    files: list[int] = []
    try:
        for number, size in enumerate([index_bytes(plan.num_images)] + [0] * plan.readers):
            files.append(sealed_file(f"decoded images {number}", size))
            stack.callback(os.close, files[-1])
    except OSError:
        return None
    return SharedCache(plan.num_images, plan.readers, plan.budget, 0, plan.readers, plan.min_chunk), files


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache of all processes of a machine; None where they do not have one."""
    is_first_of_several = world.local_rank == 0 and world.local_size > 1
    own_folder = _make_files(plan, world) if is_first_of_several else ""
    machine, opened = socket.gethostname(), None
    try:
        offers = world.gather([(machine, own_folder, plan)])
        offered = [(folder, plan) for host, folder, plan in offers if host == machine and folder]
        with suppress(OSError):
            if len(offered) == 1:  # of the main process of this machine, whose plan counts
                opened = _open_files(Path(offered[0][0]), offered[0][1], world, stack)
        are_open = world.gather([(machine, opened is not None)])  # now nobody needs the names any more
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
    """Of what is kept of an image: by a sample, unless all have one size."""
    if prepared.kept is not None and prepared.augment is None:
        return prepared.kept.num_pixels * 3
    sizes = []
    for index in np.linspace(0, len(directory) - 1, min(SAMPLED, len(directory)), dtype=np.int64):
        with suppress(UnreadableImageError):
            height, width = bounded(read_size(directory.path(int(index))), prepared.short_side)
            sizes.append(prepared.num_kept(height, width) * 3)
    return int(np.mean(sizes)) if sizes else 0


def _most_bytes(prepared: Preparation, mean_bytes: int) -> int:
    """Of what is kept of an image, on average: what a view has, or a guess."""
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
