"""A cache of decoded images, filled in the first epoch: later epochs read it instead of decoding again.

It holds the pixels before any random augmentation (`preparation`), and no pixel depends on whether there is a
cache. A single process keeps it in its own memory. Several processes on one machine share it: each writes
into its own file, in /dev/shm or else in the temporary folder, and reads the files of all. The files are
unlinked as soon as all processes have opened them, so that nothing remains of a run, however it ends. The
reader processes of a training process do the same, in files that never have names if it is alone on its
machine.
"""

import mmap
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from train_pytorch_model.image_classifier.pixels import Pixels

MAX_CHUNKS = 64  # per writer
MAX_MAPPED = 512  # chunks of all writers: each keeps a file open in a process, which may have 1,024
MIN_CHUNK = 4 << 20  # bytes
MIN_IMAGES = 4  # per chunk: no image spans two, so the end of each stays empty


class CachedDecode(Protocol):
    """Pixels of an image by its number: from the cache, or decoded now."""

    def __call__(self, number: int, decode: Callable[[], Pixels]) -> Pixels:
        """The pixels, possibly read-only. Raises what `decode` raises."""


def uncached(number: int, decode: Callable[[], Pixels]) -> Pixels:  # noqa: ARG001 (as `CachedDecode`)
    """Decode without a cache."""
    return decode()


@dataclass(frozen=True)
class Cache:
    """The cache of one dataset, whose images are numbered by row, starting at `first`."""

    remember: CachedDecode = uncached
    first: int = 0


@dataclass(frozen=True)
class SharedCache:
    """Files that processes share: an index, and one per writer. See `decoder_process`."""

    num_images: int
    num_writers: int
    num_bytes: int
    first_writer: int
    """The first of this process's writers."""
    own_writers: int
    min_chunk: int = MIN_CHUNK

    def opened(self, files: Sequence[int], writer: int | None) -> CachedDecode:
        """Open the cache on descriptors of these files; `writer` is one of this process's, counted from 0.

        With None or a number from `own_writers` on, it only reads.
        """
        index, *others = files
        share = self.num_bytes // self.num_writers
        chunks = min(MAX_CHUNKS, max(1, MAX_MAPPED // self.num_writers))
        regions = [_Region(descriptor, share, chunks, self.min_chunk) for descriptor in others]
        places = mmap.mmap(index, index_bytes(self.num_images))
        own = self.first_writer + writer if writer is not None and writer < self.own_writers else None
        return _DecodeCache(_Index(places, self.num_images), regions, own)


@dataclass(frozen=True)
class Caches:
    """The caches of the two datasets; `shared` and its `files` are for reader processes."""

    training: Cache = Cache()
    validation: Cache = Cache()
    shared: SharedCache | None = None
    files: Sequence[int] = ()


NO_CACHES = Caches()


class _DecodeCache:
    """Thread-safe: at worst, an image that two threads decode at once is cached twice."""

    def __init__(self, index: "_Index", regions: "Sequence[_Region]", own: int | None) -> None:
        self._index, self._regions, self._own = index, regions, own

    def __call__(self, number: int, decode: Callable[[], Pixels]) -> Pixels:
        found = self._index.find(number)
        if found is not None:
            owner, offset, height, width = found
            with suppress(OSError):  # too many open files, or no address space left
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
    """Where the pixels of each image are, in 16 bytes per image."""

    OWNER_SHIFT = 48

    def __init__(self, buffer: "mmap.mmap | bytearray", num_images: int) -> None:
        self._places = np.frombuffer(buffer, dtype=np.int64, count=num_images)  # 0: not cached
        self._sizes = np.frombuffer(buffer, np.int32, count=2 * num_images, offset=8 * num_images)

    def find(self, number: int) -> tuple[int, int, int, int] | None:
        """(owner, offset, height, width)."""
        place = int(self._places[number])
        if place == 0:
            return None
        owner, offset = divmod(place - 1, 1 << self.OWNER_SHIFT)
        return owner, offset, int(self._sizes[2 * number]), int(self._sizes[2 * number + 1])

    def enter(self, number: int, owner: int, offset: int, height: int, width: int) -> None:
        self._sizes[2 * number : 2 * number + 2] = height, width
        # Last, and in one write. Other processes read the image in a later pass, after synchronising.
        self._places[number] = (owner << self.OWNER_SHIFT) + offset + 1


class _Region:
    """Memory that grows chunk by chunk, private to this process or in a shared file."""

    def __init__(
        self, descriptor: int | None, budget: int, max_chunks: int = MAX_CHUNKS, min_chunk: int = MIN_CHUNK
    ) -> None:
        """At most `budget` bytes, in chunks of at least `min_chunk` bytes, or of `budget` if that is less."""
        chunk = min(max(min_chunk, budget // max_chunks), budget)
        self._descriptor, self._chunk_bytes = descriptor, max(_whole_pages(chunk), mmap.ALLOCATIONGRANULARITY)
        self._num_chunks = budget // self._chunk_bytes
        self._maps: dict[int, mmap.mmap] = {}
        self._end = 0
        self._lock = threading.Lock()

    def allocate(self, num_bytes: int) -> int | None:
        """The offset of `num_bytes` within one chunk; None if there is no space."""
        with self._lock:
            start, size = self._end, self._chunk_bytes
            if start // size != (start + num_bytes - 1) // size:
                start = (start // size + 1) * size
            number = start // size
            if num_bytes > size or number >= self._num_chunks:
                return None
            if number not in self._maps:
                try:
                    if self._descriptor is not None:
                        # Reserves the space now: a full file system is an error here, and not a SIGBUS later.
                        os.posix_fallocate(self._descriptor, number * size, size)
                    self._map(number)
                except OSError:
                    self._num_chunks = number
                    return None
            self._end = start + num_bytes
            return start

    def view(self, offset: int, height: int, width: int, writable: bool = False) -> Pixels:
        """The pixels at an offset."""
        number, start = divmod(offset, self._chunk_bytes)
        chunk = self._maps.get(number) or self._map(number)
        flat = np.frombuffer(chunk, dtype=np.uint8, count=height * width * 3, offset=start)
        flat.flags.writeable = writable
        return flat.reshape(height, width, 3)

    def _map(self, number: int) -> mmap.mmap:
        size = self._chunk_bytes
        if self._descriptor is None:
            chunk = mmap.mmap(-1, size)
        else:
            chunk = mmap.mmap(self._descriptor, size, offset=number * size)
        return self._maps.setdefault(number, chunk)


def private_cache(num_images: int, budget: int, min_chunk: int = MIN_CHUNK) -> CachedDecode:
    """A cache in `budget` bytes of this process's memory."""
    index = _Index(bytearray(index_bytes(num_images)), num_images)
    return _DecodeCache(index, [_Region(None, budget, min_chunk=min_chunk)], 0)


def chunk_for(image_bytes: int) -> int:
    """Minimum bytes that a writer of images of `image_bytes` each should reserve at once."""
    wanted = max(MIN_CHUNK, MIN_IMAGES * image_bytes)
    return _whole_pages(wanted + mmap.ALLOCATIONGRANULARITY - 1)


def index_bytes(num_images: int) -> int:
    """The size of the index."""
    return 16 * num_images


def _whole_pages(num_bytes: int) -> int:
    return num_bytes // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
