"""A cache of decoded images, which later epochs read instead of decoding again.

It holds the pixels before any random augmentation (`preparation`), and no pixel depends on whether
there is a cache. The processes of a machine, and the reader processes of each, share a file in
memory:

    16 bytes per image        offset of its pixels in the file, 0 if it is not cached; height, width
    16 bytes per image        its perceptual hash, 0 until it is decoded for the first time
    features                  of a frozen backbone, if they are cached (`features`)
    pixels, writer by writer  each process fills its part, and reads all parts

The file is sparse: an image takes memory only once it is cached. Decoder processes import this
module, which imports no PyTorch.
"""

import mmap
import threading
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.data.cache_plan import INDEX_BYTES, CachePlan
from train_pytorch_model.image_classifier.decoding import Pixels
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES


@dataclass(frozen=True)
class SharedCache:
    """A file of cached images, as one of the processes that share it has opened it."""

    file: int  # the descriptor; -1 for memory of this process alone
    plan: CachePlan
    process: int  # the number, from 0, of this one among those who have opened it
    num_processes: int


class DecodeCache:
    """Decoded images by number, their hashes and features, in the memory of a `SharedCache`.

    Thread-safe: at worst, an image that two threads decode at once is cached twice.
    """

    def __init__(self, shared: SharedCache, writer: int) -> None:
        """Map the file for a writer, counted from 0; any beyond the planned ones only reads.

        Raises `OSError`.
        """
        plan = shared.plan
        count = plan.num_images
        self._memory = mmap.mmap(shared.file, plan.num_bytes)
        self._offsets = np.frombuffer(self._memory, np.int64, count)
        sizes = np.frombuffer(self._memory, np.int32, 2 * count, offset=8 * count)
        self._sizes = sizes.reshape(-1, 2)  # (images, 2): height, width

        hash_bytes = NUM_BYTES * count if plan.is_hashed else 0
        hashes = np.frombuffer(self._memory, np.uint8, hash_bytes, offset=INDEX_BYTES * count)
        self.hashes = hashes.reshape(-1, NUM_BYTES)  # (images, 16), or (0, 16) if there are none
        self.features = memoryview(self._memory)[plan.features.start : plan.features.stop]

        num_writers = max(1, plan.readers)
        part_bytes = plan.budget // (num_writers * shared.num_processes)
        part = shared.process * num_writers + writer
        self._lock = threading.Lock()
        self._next = plan.features.stop + part * part_bytes
        self._end = self._next + part_bytes
        if writer >= num_writers:
            self._end = self._next

    def get(self, number: int) -> Pixels | None:
        """Return the pixels of an image, read-only; None if it is not cached."""
        offset = int(self._offsets[number])
        if not offset:
            return None
        height, width = self._sizes[number].tolist()
        pixels = self._pixels_at(offset, height, width)
        pixels.flags.writeable = False
        return pixels

    def put(self, number: int, pixels: Pixels) -> None:
        """Cache the pixels of an image, unless this writer's part of the memory is full."""
        with self._lock:
            offset = self._next
            if offset + pixels.nbytes > self._end:
                return
            self._next += pixels.nbytes
        height, width, _ = pixels.shape
        self._pixels_at(offset, height, width)[:] = pixels
        self._sizes[number] = height, width
        # Last, and in one write. Other processes read the image in a later pass, after
        # synchronizing.
        self._offsets[number] = offset

    def _pixels_at(self, offset: int, height: int, width: int) -> Pixels:
        pixels = np.frombuffer(self._memory, np.uint8, height * width * 3, offset)
        return pixels.reshape(height, width, 3)
