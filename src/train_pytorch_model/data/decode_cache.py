"""A cache of decoded images, filled in the first epoch: later epochs read it instead of decoding again.

It holds the pixels before any random augmentation (`preparation`), and no pixel depends on whether there is a
cache. A single process keeps it in its own memory. The processes of a machine, and the reader processes of
each, share a file:

    16 bytes per image        offset of its pixels in the file, 0 if it is not cached; height and width
    pixels, writer by writer  each process fills its own part, and reads all parts

The file is sparse: an image takes memory, or space on a disk, only once it is cached.
"""

import mmap
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

RESERVED = 4 << 20  # bytes of the file that a writer reserves at once


class CachedDecode(Protocol):
    """Pixels of an image by its number: from the cache, or decoded now."""

    def __call__(self, number: int, decode: Callable[[], np.ndarray]) -> np.ndarray:
        """Return the pixels (H, W, 3), uint8, possibly read-only. Raises what `decode` raises."""


def uncached(number: int, decode: Callable[[], np.ndarray]) -> np.ndarray:  # noqa: ARG001 (as `CachedDecode`)
    """Decode without a cache."""
    return decode()


@dataclass(frozen=True)
class Cache:
    """The cache of one dataset, whose images are numbered by row, starting at `first`."""

    remember: CachedDecode = uncached
    first: int = 0


@dataclass(frozen=True)
class SharedCache:
    """A file of cached images, as one of the processes that share it has opened it."""

    file: int
    """The descriptor; -1 for memory of this process alone."""
    num_images: int
    num_bytes: int
    num_writers: int = 1
    first_writer: int = 0
    """The first of this process's writers."""
    own_writers: int = 1

    def open(self, writer: int) -> CachedDecode:
        """Map the file for one of this process's writers, counted from 0; any further one only reads.

        Raises `OSError`.
        """
        index = 16 * self.num_images
        size = (self.num_bytes - index) // self.num_writers if writer < self.own_writers else 0
        start = index + (self.first_writer + writer) * size
        return _DecodeCache(self, range(start, start + size))


@dataclass(frozen=True)
class Caches:
    """The caches of the two datasets; `shared` is for reader processes."""

    training: Cache = Cache()
    validation: Cache = Cache()
    shared: SharedCache | None = None


NO_CACHES = Caches()


class _DecodeCache:
    """Thread-safe: at worst, an image that two threads decode at once is cached twice."""

    def __init__(self, shared: SharedCache, writable: range) -> None:
        self._memory = mmap.mmap(shared.file, shared.num_bytes)
        self._offsets = np.frombuffer(self._memory, np.int64, shared.num_images)
        sizes = np.frombuffer(self._memory, np.int32, 2 * shared.num_images, offset=8 * shared.num_images)
        self._sizes = sizes.reshape(-1, 2)  # (images, 2): height, width
        self._file, self._lock = shared.file, threading.Lock()
        self._next = self._reserved = writable.start
        self._end = writable.stop

    def __call__(self, number: int, decode: Callable[[], np.ndarray]) -> np.ndarray:
        if offset := int(self._offsets[number]):
            height, width = self._sizes[number].tolist()
            cached = self._view(offset, height, width)
            cached.flags.writeable = False
            return cached
        pixels = decode()
        if offset := self._allocate(pixels.nbytes):
            height, width, _ = pixels.shape
            self._view(offset, height, width)[:] = pixels
            self._sizes[number] = height, width
            # Last, and in one write. Other processes read the image in a later pass, after synchronizing.
            self._offsets[number] = offset
        return pixels

    def _view(self, offset: int, height: int, width: int) -> np.ndarray:
        return np.frombuffer(self._memory, np.uint8, height * width * 3, offset).reshape(height, width, 3)

    def _allocate(self, num_bytes: int) -> int:
        """Return the offset of free space; 0 if there is none."""
        with self._lock:
            start, end = self._next, self._next + num_bytes
            if end > self._end:
                return 0
            if self._file != -1 and end > self._reserved:
                reserved = min(self._end, max(end, self._reserved + RESERVED))
                try:
                    # A full file system is an error here, and not a SIGBUS when the pixels are written.
                    os.posix_fallocate(self._file, self._reserved, reserved - self._reserved)
                except OSError:
                    self._end = self._reserved
                    return 0
                self._reserved = reserved
            self._next = end
            return start
