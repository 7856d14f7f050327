"""Decoder processes, one for each thread of another process, forked by a server that has done the imports.

A fork takes milliseconds, and shares the memory of imported modules: Pillow, and PyTorch for processes that
do more than decode. Requests are pickled by the process that has started the server. Replies are plain
numbers and text: a process that has read untrusted files is not to be trusted.
"""

import importlib
import mmap
import os
import pickle
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from train_pytorch_model.image_classifier.decoding import MAX_JPEG_PIXELS, UnreadableImageError, drafted
from train_pytorch_model.machine.process_table import end_with_parent

LENGTH = struct.Struct("<I")
"""The byte length of the pickled request that follows."""
REPLY = struct.Struct("<II")
"""Height and width of an image's pixels; or 0 and the byte length of the reason that follows."""
NUMBER = struct.Struct("<q")
"""The id of a process, or its exit status; `NO_FORK` if it cannot be forked."""
NO_FORK = -(1 << 32)
MAX_REASON = 1 << 16  # bytes
MAX_MESSAGE, MAX_DESCRIPTORS = 1 << 16, 253  # of a message to the server; 253 is Linux's limit

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


Prepare = Callable[[ImageRequest, Any], np.ndarray]
"""An image, and the cache of decoded ones (`decode_cache.CachedDecode`, or None) → (H, W, 3), uint8.

Raises `UnreadableImageError`.
"""


@dataclass(frozen=True)
class Drafted:
    """Decodes only."""

    short_side: int

    def __call__(self, request: ImageRequest, _: object) -> np.ndarray:
        return np.asarray(drafted(request.file, self.short_side))


class SharedCache(Protocol):
    """Memory for decoded images, as `decode_cache` implements it."""

    @property
    def num_bytes(self) -> int:
        """The maximum size."""

    def opened(self, files: Sequence[int], writer: int | None) -> object:
        """Its files → `decode_cache.CachedDecode`, which caches only for a `writer` with its own number."""


@dataclass(frozen=True)
class Fork:
    """A request for a process."""

    cache: SharedCache | None
    writer: int | None


def main() -> None:
    """The server: import the modules on its command line, then fork processes until the client ends."""
    end_with_parent()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(ConnectionError):  # as below: the client may end at any moment
        while (received := socket.recv_fds(control, MAX_MESSAGE, MAX_DESCRIPTORS))[0]:
            message, descriptors, _, _ = received
            request: int | Fork = pickle.loads(message)
            if isinstance(request, int):
                number = os.waitstatus_to_exitcode(os.waitpid(request, 0)[1])
            else:
                number = _fork(request, descriptors, control)
            control.send(NUMBER.pack(number))


def _fork(request: Fork, descriptors: list[int], control: socket.socket) -> int:
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        pid = NO_FORK
    if pid == 0:
        status = 1
        try:
            end_with_parent(parent)
            control.close()
            with suppress(ConnectionError):  # the client has ended before reading a reply, e.g. at a signal
                _serve(request, *descriptors)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _serve(request: Fork, connection: int, pixels: int, *files: int) -> None:
    """Answer requests until the connection is closed."""
    cache = request.cache
    _limit_memory(cache.num_bytes if cache else 0)
    remember = cache.opened(files, request.writer) if cache else None
    memory = np.frombuffer(mmap.mmap(pixels, CAPACITY), np.uint8)
    with socket.socket(fileno=connection) as endpoint, endpoint.makefile("rwb") as stream:
        while header := stream.read(LENGTH.size):
            prepare, requests = pickle.loads(stream.read(*LENGTH.unpack(header)))
            stream.writelines(_answers(prepare, requests, remember, memory))
            stream.flush()


def _answers(
    prepare: Prepare, requests: Sequence[ImageRequest], remember: object, memory: np.ndarray
) -> Iterator[bytes]:
    """The replies to one request; the pixels are written to `memory` one after the other."""
    end = 0
    for one in requests:
        _limit_computing()
        try:
            pixels = prepare(one, remember)
        except (UnreadableImageError, MemoryError) as error:
            reason = (str(error) or type(error).__name__).encode(errors="surrogateescape")[:MAX_REASON]
            yield REPLY.pack(0, len(reason)) + reason
            continue
        start, end = end, end + pixels.size
        memory[start:end].reshape(pixels.shape)[:] = pixels
        yield REPLY.pack(*pixels.shape[:2])


def _limit_memory(shared: int) -> None:
    import resource  # not on Windows, which imports this module for its constants

    begun = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = begun + shared + MEMORY
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def _limit_computing() -> None:
    """Have the system kill this process (SIGXCPU) if it takes too much CPU time from now on."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    end = int(usage.ru_utime + usage.ru_stime) + 1 + COMPUTING_S
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))
