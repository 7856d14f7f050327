"""Decoded images, kept from the first epoch on: later epochs read them instead of decoding again.

What is kept is what comes before all that is random (`preparation`), exactly as it comes without a cache: no
pixel depends on whether there is one. One process keeps it in memory of its own. Several of one machine
share it: each writes into a file of its own, in /dev/shm or else in the temporary folder, and reads those of
all. The files lose their names as soon as all processes have opened them, so that nothing remains of a run,
however it ends. The processes that read images for one that trains do the same, in files that never have
names where it is alone.
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

MAX_CHUNKS = 64  # of a writer
MAX_MAPPED = 512  # chunks of all writers: for each a process has a file open, and 1,024 at most
MIN_CHUNK = 4 << 20  # bytes
MIN_IMAGES = 4  # of a chunk: an image is in one whole, and what is left at its end stays empty


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
    min_chunk: int = MIN_CHUNK

    def opened(self, files: Sequence[int], writer: int | None) -> Remember:
        """With descriptors of these files; `writer` is one of this process's, counted from 0.

        One that is none of them only reads.
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
    """Of the two datasets; for processes that read for this one, `shared` with its `files`."""

    training: Cache = Cache()
    validation: Cache = Cache()
    shared: SharedCache | None = None
    files: Sequence[int] = ()


NO_CACHES = Caches()


class _DecodeCache:
    """Thread-safe: an image that two threads decode at once is kept twice at worst."""

    def __init__(self, index: "_Index", regions: "Sequence[_Region]", own: int | None) -> None:
        self._index, self._regions, self._own = index, regions, own

    def __call__(self, number: int, decode: Callable[[], Pixels]) -> Pixels:
        found = self._index.find(number)
        if found is not None:
            owner, offset, height, width = found
            with suppress(OSError):  # too many files open, or no more addresses
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

    def __init__(
        self, descriptor: int | None, budget: int, max_chunks: int = MAX_CHUNKS, min_chunk: int = MIN_CHUNK
    ) -> None:
        """`budget` bytes at most, in chunks of `min_chunk` at least, or of less where it is less."""
        chunk = min(max(min_chunk, budget // max_chunks), budget)
        self._descriptor, self._chunk_bytes = descriptor, max(_whole_pages(chunk), mmap.ALLOCATIONGRANULARITY)
        self._num_chunks = budget // self._chunk_bytes
        self._maps: dict[int, mmap.mmap] = {}
        self._end = 0
        self._lock = threading.Lock()

    def allocate(self, num_bytes: int) -> int | None:
        """The offset of `num_bytes` in one chunk; None when there is no room."""
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
                        # Takes the room now: a full file system is an error here, and no signal later.
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


def private_cache(num_images: int, budget: int, min_chunk: int = MIN_CHUNK) -> Remember:
    """In `budget` bytes of this process's memory."""
    index = _Index(bytearray(index_bytes(num_images)), num_images)
    return _DecodeCache(index, [_Region(None, budget, min_chunk=min_chunk)], 0)


def chunk_for(image_bytes: int) -> int:
    """Bytes that a writer of images of `image_bytes` each should take at once, at least."""
    wanted = max(MIN_CHUNK, MIN_IMAGES * image_bytes)
    return _whole_pages(wanted + mmap.ALLOCATIONGRANULARITY - 1)


def index_bytes(num_images: int) -> int:
    """Of the file that says where the images are."""
    return 16 * num_images


def _whole_pages(num_bytes: int) -> int:
    return num_bytes // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
