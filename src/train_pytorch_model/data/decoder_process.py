"""What a decoder process does: answer one request after the other, leaving pixels in shared memory.

Requests are pickled by the process that has started it. Replies are JSON, for each image the height and width
of its pixels or the reason why there are none: a process that has read untrusted files is not to be trusted.
"""

import json
import mmap
import os
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from train_pytorch_model.data.decode_cache import CachedDecode, SharedCache, uncached
from train_pytorch_model.image_classifier.decoding import (
    MAX_JPEG_PIXELS,
    Colours,
    UnreadableImageError,
    decode,
    highest_value,
)

CAPACITY = 3 * MAX_JPEG_PIXELS  # bytes of address space; only the pages that images fill take memory
COMPUTING_S = 60  # CPU time for one image; the largest take five. Waiting for slow storage does not count
MEMORY = 4 << 30  # bytes of address space beyond the initial ones: only a decoder that needs more fails


class ImageRequest(NamedTuple):
    """An image to read."""

    file: str
    number: int = 0
    """Its number in the decode cache."""
    seed: int = 0
    """The seed of its augmentation."""


Prepare = Callable[[ImageRequest, CachedDecode], np.ndarray]
"""An image, and the cache of decoded ones → (H, W, 3), uint8. Raises `UnreadableImageError`."""


@dataclass(frozen=True)
class Draft:
    """Decodes only; a `Prepare` that needs no PyTorch."""

    short_side: int
    colours: Colours

    def __call__(self, request: ImageRequest, _: object) -> np.ndarray:
        return np.asarray(decode(request.file, self.short_side, self.colours))


def highest_value_as_pixel(request: ImageRequest, _: object) -> np.ndarray:
    """A `Prepare`: the highest value of a grey image as a single pixel (1, 1, 3), the high byte first."""
    high, low = divmod(highest_value(request.file), 256)
    return np.array([[[high, low, 0]]], np.uint8)


def serve(connection: Connection, folder: Path, cache: SharedCache | None, writer: int) -> None:
    """Answer requests until the other end of the connection is closed.

    It first sends the descriptors of the memory for pixels and of the cache.
    """
    os.setpgid(0, 0)  # so that Ctrl-C does not reach this process
    os.chdir(folder)  # to which names of files are relative
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # the other cores have processes of their own
    # The other end is closed, for instance at a signal, or there is no memory: that process will notice.
    with suppress(EOFError, OSError):
        pixels = np.frombuffer(mmap.mmap(reduction.recv_handle(connection), CAPACITY), np.uint8)
        remember: CachedDecode = uncached
        if cache is not None:
            remember = replace(cache, file=reduction.recv_handle(connection)).open(writer)
        _limit_memory()
        connection.send_bytes(b"ready")
        while True:
            prepare, requests = pickle.loads(connection.recv_bytes())
            connection.send_bytes(json.dumps(list(_answer(prepare, requests, remember, pixels))).encode())


def _answer(
    prepare: Prepare, requests: Sequence[ImageRequest], remember: CachedDecode, memory: np.ndarray
) -> Iterator[tuple[int, int] | str]:
    """Yield the reply for each image; the pixels are written to `memory` one after the other."""
    end = 0
    for request in requests:
        _limit_computing()
        try:
            pixels = prepare(request, remember)
        except (UnreadableImageError, MemoryError) as error:
            yield str(error) or type(error).__name__
            continue
        start, end = end, end + pixels.size
        memory[start:end].reshape(pixels.shape)[:] = pixels
        yield pixels.shape[0], pixels.shape[1]


def _limit_memory() -> None:
    with suppress(OSError):  # without /proc there is no limit
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + MEMORY)


def _limit_computing() -> None:
    """Have the system kill this process (SIGXCPU) if it takes too much CPU time from now on."""
    times = os.times()
    _limit("RLIMIT_CPU", int(times.user + times.system) + 1 + COMPUTING_S)


def _limit(name: str, value: int) -> None:
    import resource  # not on Windows

    kind = getattr(resource, name)
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
