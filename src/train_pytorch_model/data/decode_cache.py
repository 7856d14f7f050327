"""A cache of decoded images, filled in the first epoch: later epochs read it instead of decoding again.

It holds the pixels before any random augmentation (`preparation`), and no pixel depends on whether there is a
cache. The processes of a machine, and the reader processes of each, share a file in memory:

    16 bytes per image        offset of its pixels in the file, 0 if it is not cached; height and width
    16 bytes per image        its perceptual hash, 0 until it is decoded for the first time
    features                  of a frozen backbone, if they are kept (`features`)
    pixels, writer by writer  each process fills its own part, and reads all parts

The file is sparse: an image takes memory only once it is cached.
"""

import mmap
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from train_pytorch_model.inputs.perceptual_hash import NUM_BYTES, perceptual_hash

Frame = Callable[[np.ndarray], np.ndarray]
"""The pixels of a whole image → those of them to cache."""


class CachedDecode(Protocol):
    """Pixels of an image by its number: from the cache, or decoded now."""

    def __call__(self, number: int, decode: Callable[[], np.ndarray], frame: Frame) -> np.ndarray:
        """Return `frame(decode())`, (H, W, 3), uint8, possibly read-only. Raises what `decode` raises."""


def uncached(number: int, decode: Callable[[], np.ndarray], frame: Frame) -> np.ndarray:  # noqa: ARG001
    """Decode without a cache."""
    return frame(decode())


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
    is_hashed: bool
    num_writers: int = 1
    first_writer: int = 0
    """The first of this process's writers."""
    own_writers: int = 1
    num_feature_bytes: int = 0

    @property
    def features(self) -> slice:
        """Where in the file the features are."""
        start = (16 + NUM_BYTES * self.is_hashed) * self.num_images
        return slice(start, start + self.num_feature_bytes)

    def open(self, writer: int) -> "DecodeCache":
        """Map the file for one of this process's writers, counted from 0; any further one only reads.

        Raises `OSError`.
        """
        index = self.features.stop
        size = (self.num_bytes - index) // self.num_writers if writer < self.own_writers else 0
        start = index + (self.first_writer + writer) * size
        return DecodeCache(self, range(start, start + size))


@dataclass(frozen=True)
class Caches:
    """The caches of the two datasets; `shared` is for reader processes."""

    training: Cache = Cache()
    validation: Cache = Cache()
    shared: SharedCache | None = None
    hashes: np.ndarray = field(default_factory=lambda: np.empty((0, NUM_BYTES), np.uint8))
    """(N, 16), uint8: the perceptual hashes of all images by number, as far as they have been decoded on this
    machine; empty if there are none, or if another process of the machine has them."""
    features: memoryview | None = None
    """Where features are kept; None if they are not."""


NO_CACHES = Caches()


class DecodeCache:
    """Thread-safe: at worst, an image that two threads decode at once is cached twice."""

    def __init__(self, shared: SharedCache, writable: range) -> None:
        self._memory = mmap.mmap(shared.file, shared.num_bytes)
        self._offsets = np.frombuffer(self._memory, np.int64, shared.num_images)
        sizes = np.frombuffer(self._memory, np.int32, 2 * shared.num_images, offset=8 * shared.num_images)
        self._sizes = sizes.reshape(-1, 2)  # (images, 2): height, width
        num_hashes = shared.num_images if shared.is_hashed else 0
        hashes = np.frombuffer(self._memory, np.uint8, NUM_BYTES * num_hashes, offset=16 * shared.num_images)
        self.hashes = hashes.reshape(-1, NUM_BYTES)  # (images, 16)
        self.features = memoryview(self._memory)[shared.features]
        """Written by `features`."""
        self._lock = threading.Lock()
        self._next, self._end = writable.start, writable.stop

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
            self._next = end
            return start
