"""Decoded images, kept from the first epoch on: later epochs read them instead of decoding again.

What is kept is the bounded first stage of an image, exactly as it comes without a cache: no pixel depends on
whether there is one. One process keeps it in memory of its own. Several of one machine share it: each writes
into a file of its own, in /dev/shm or else in the temporary folder, and reads those of all. The files lose
their names as soon as all processes have opened them, so that nothing remains of a run, however it ends. The
processes that read images for one that trains do the same, in files that never have names where it is alone.
"""

import mmap
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from train_pytorch_model.distributed import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, bounded, read_size
from train_pytorch_model.image_classifier.pixels import Pixels
from train_pytorch_model.image_classifier.preprocessing import Framing
from train_pytorch_model.memory import available_memory

MEMORY_SHARE = 1 / 4  # of what is available, for all processes of a machine together
FREE_SHARE = 1 / 2  # of a file system: others need room there, too
MIN_SHARE = 0.05  # of the images: fewer are not worth it
SAMPLED = 32  # images whose headers tell the size of all
MAX_CHUNKS = 64  # of a process: a machine maps some 65,000 at most
MIN_CHUNK = 4 << 20  # bytes; also the largest image for which there is always room
SLACK = 1.1  # the sample may be of smaller images than the rest, and chunks are not filled to the end
FOLDERS = (Path("/dev/shm"), Path(tempfile.gettempdir()))


class Remember(Protocol):
    """Pixels by number: decoded now, or before."""

    def __call__(self, number: int, decode: Callable[[], Pixels]) -> Pixels:
        """The pixels, perhaps read-only. Raises what `decode` raises."""


def every_time(number: int, decode: Callable[[], Pixels]) -> Pixels:  # noqa: ARG001, the form of `Remember`
    """Without a cache."""
    return decode()


@dataclass(frozen=True)
class Cache:
    """Of one dataset, whose images have the numbers of their rows after the `first`."""

    remember: Remember = every_time
    first: int = 0


@dataclass(frozen=True)
class SharedCache:
    """Files that processes write and read: an index, and one for each writer. See `decoder_process`."""

    num_images: int
    num_writers: int
    num_bytes: int
    first_writer: int
    """Of those that belong to this process."""
    own_writers: int

    def opened(self, files: Sequence[int], writer: int | None) -> Remember:
        """With descriptors of these files; `writer` is one of this process's, counted from 0.

        One that is none of them only reads.
        """
        index, *others = files
        share = self.num_bytes // self.num_writers
        regions = [_Region(descriptor, share) for descriptor in others]
        places = mmap.mmap(index, _Index.num_bytes(self.num_images))
        own = self.first_writer + writer if writer is not None and writer < self.own_writers else None
        return _DecodeCache(_Index(places, self.num_images), regions, own)


@dataclass(frozen=True)
class Caches:
    """Of the two datasets; for processes that read for this one, `shared` with its `files`."""

    training: Cache = Cache()
    validation: Cache = Cache()
    shared: SharedCache | None = None
    files: Sequence[int] = ()


NO_CACHES = Caches()


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

    @property
    def num_images(self) -> int:
        return self.num_training + self.num_validation


def plan_cache(
    training: ImageDirectory,
    validation: ImageDirectory,
    framing: Framing,
    epochs: int,
    world: World,
    readers: int = 0,
) -> CachePlan:
    """Whether images are kept: where there are epochs to come, and memory for a good part of the images."""
    decoded = len(training) + len(validation)
    wanted = len(training) * _mean_bytes(training, framing.short_side)
    wanted += len(validation) * framing.height * framing.width * 3
    off = CachePlan(_num_rows(training), _num_rows(validation), 0, None, "", readers)
    if epochs == 1:
        return replace(off, summary="every image once: there is one epoch")
    budget, folder = int(available_memory() * MEMORY_SHARE), None
    if world.local_size > 1:
        needed = int(wanted * SLACK) + 2 * world.local_size * max(1, readers) * MIN_CHUNK
        rooms = [(min(budget, needed, _usable(path)), path) for path in FOLDERS]
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
        if world.local_size == 1 and not (plan.readers and plan.budget):
            yield _caches(plan, _open_private(plan)) if plan.budget else NO_CACHES
            return
        opened = _open_unnamed(plan, stack) if world.local_size == 1 else _open_shared(plan, world, stack)
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


class _DecodeCache:
    """Thread-safe: an image that two threads decode at once is kept twice at worst."""

    def __init__(self, index: "_Index", regions: "Sequence[_Region]", own: int | None) -> None:
        self._index, self._regions, self._own = index, regions, own

    def __call__(self, number: int, decode: Callable[[], Pixels]) -> Pixels:
        found = self._index.find(number)
        if found is not None:
            owner, offset, height, width = found
            return self._regions[owner].view(offset, height, width)
        pixels = decode()
        if self._own is None:
            return pixels
        height, width, _ = pixels.shape
        offset_or_none = self._regions[self._own].allocate(pixels.nbytes)
        if offset_or_none is not None:
            self._regions[self._own].view(offset_or_none, height, width, writable=True)[:] = pixels
            self._index.enter(number, self._own, offset_or_none, height, width)
        return pixels


class _Index:
    """Where the pixels of each image are: 16 bytes an image."""

    OWNER_SHIFT = 48

    def __init__(self, buffer: "mmap.mmap | bytearray", num_images: int) -> None:
        self._places = np.frombuffer(buffer, dtype=np.int64, count=num_images)  # 0: not there
        self._sizes = np.frombuffer(buffer, np.int32, count=2 * num_images, offset=8 * num_images)

    @staticmethod
    def num_bytes(num_images: int) -> int:
        return 16 * num_images

    def find(self, number: int) -> tuple[int, int, int, int] | None:
        """(owner, offset, height, width)."""
        place = int(self._places[number])
        if place == 0:
            return None
        owner, offset = divmod(place - 1, 1 << self.OWNER_SHIFT)
        return owner, offset, int(self._sizes[2 * number]), int(self._sizes[2 * number + 1])

    def enter(self, number: int, owner: int, offset: int, height: int, width: int) -> None:
        self._sizes[2 * number : 2 * number + 2] = height, width
        # Last, and in one piece. Other processes read the image in another pass: they have met in between.
        self._places[number] = (owner << self.OWNER_SHIFT) + offset + 1


class _Region:
    """Memory that grows chunk by chunk: of this process, or of a file that processes share."""

    def __init__(self, descriptor: int | None, budget: int) -> None:
        self._descriptor, self._chunk = descriptor, max(MIN_CHUNK, _whole_pages(budget // MAX_CHUNKS))
        self._max_chunks = budget // self._chunk
        self._chunks: dict[int, mmap.mmap] = {}
        self._end = 0
        self._lock = threading.Lock()

    def allocate(self, num_bytes: int) -> int | None:
        """The offset of so many bytes in one chunk; None when there is no room."""
        with self._lock:
            start = self._end
            if start // self._chunk != (start + num_bytes - 1) // self._chunk:
                start = (start // self._chunk + 1) * self._chunk
            number = start // self._chunk
            if num_bytes > self._chunk or number >= self._max_chunks:
                return None
            if number not in self._chunks:
                try:
                    if self._descriptor is not None:
                        # Takes the room now: a full file system is an error here, and no signal later.
                        os.posix_fallocate(self._descriptor, number * self._chunk, self._chunk)
                    self._map(number)
                except OSError:
                    self._max_chunks = number
                    return None
            self._end = start + num_bytes
            return start

    def view(self, offset: int, height: int, width: int, writable: bool = False) -> Pixels:
        """The pixels at an offset."""
        number, start = divmod(offset, self._chunk)
        chunk = self._chunks.get(number) or self._map(number)
        flat = np.frombuffer(chunk, dtype=np.uint8, count=height * width * 3, offset=start)
        flat.flags.writeable = writable
        return flat.reshape(height, width, 3)

    def _map(self, number: int) -> mmap.mmap:
        if self._descriptor is None:
            chunk = mmap.mmap(-1, self._chunk)
        else:
            chunk = mmap.mmap(self._descriptor, self._chunk, offset=number * self._chunk)
        return self._chunks.setdefault(number, chunk)


def _open_private(plan: CachePlan) -> Remember:
    index = _Index(bytearray(_Index.num_bytes(plan.num_images)), plan.num_images)
    return _DecodeCache(index, [_Region(None, plan.budget)], 0)


def _open_unnamed(plan: CachePlan, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache of the readers of one process; None where there is no room."""
    files = []
    for number in range(1 + plan.readers):
        files.append(os.memfd_create(f"decoded images {number}"))
        stack.callback(os.close, files[-1])
    try:
        os.posix_fallocate(files[0], 0, _Index.num_bytes(plan.num_images))
    except OSError:
        return None
    return SharedCache(plan.num_images, plan.readers, plan.budget, 0, plan.readers), files


def _open_shared(plan: CachePlan, world: World, stack: ExitStack) -> tuple[SharedCache, list[int]] | None:
    """The cache of all processes of a machine; None where they do not have one."""
    own_folder = _make_files(plan, world) if world.local_rank == 0 else ""
    machine = socket.gethostname()
    offers = world.gather([(machine, own_folder, plan)])
    offered = [(folder, plan) for host, folder, plan in offers if host == machine and folder]
    opened = None
    try:
        with suppress(OSError):
            if len(offered) == 1:  # of the main process of this machine, whose plan counts
                opened = _open_files(Path(offered[0][0]), offered[0][1], world, stack)
        are_open = world.gather([opened is not None])  # after this, nobody needs the names any more
    finally:
        if own_folder:
            shutil.rmtree(own_folder, ignore_errors=True)
    return opened if all(are_open) else None


def _make_files(plan: CachePlan, world: World) -> str:
    if plan.budget == 0 or plan.folder is None or not hasattr(os, "posix_fallocate"):
        return ""
    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="train_pytorch_model-", dir=plan.folder)
        for name in ("index", *map(str, range(world.local_size * max(1, plan.readers)))):
            (Path(folder) / name).touch(mode=0o600)
        with (Path(folder) / "index").open("wb") as index:
            os.posix_fallocate(index.fileno(), 0, _Index.num_bytes(plan.num_images))
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
    return SharedCache(plan.num_images, world.local_size * own, plan.budget, first, own), files


def _num_rows(directory: ImageDirectory) -> int:
    return int(directory.rows[-1]) + 1


def _mean_bytes(directory: ImageDirectory, short_side: int) -> int:
    """Of a decoded image, by a sample."""
    sizes = []
    for index in np.linspace(0, len(directory) - 1, min(SAMPLED, len(directory)), dtype=np.int64):
        with suppress(UnreadableImageError):
            height, width = bounded(read_size(directory.path(int(index))), short_side)
            sizes.append(height * width * 3)
    return int(np.mean(sizes)) if sizes else 0


def _usable(path: Path) -> int:
    try:
        status = os.statvfs(path)
    except (OSError, AttributeError):
        return 0
    return int(status.f_bavail * status.f_frsize * FREE_SHARE) if os.access(path, os.W_OK) else 0


def _whole_pages(num_bytes: int) -> int:
    return num_bytes // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY


def _text(num_bytes: int) -> str:
    gib = num_bytes / (1 << 30)
    return f"{gib:.1f} GiB" if gib >= 1 else f"{gib * 1024:.1f} MiB"
