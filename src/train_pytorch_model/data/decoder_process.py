"""Decoding processes, one for each thread of another process: a server that has imported all forks them.

A fork takes milliseconds, and shares the memory of what was imported: Pillow, and PyTorch for those that do
more than decode. Requests are pickled by the process that has started this one. Replies are plain numbers and
texts: who has read the files of strangers is not to be trusted.
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
"""Of a pickled request, which follows."""
REPLY = struct.Struct("<II")
"""Height and width of the pixels of an image; 0, and the bytes of the reason, which follow."""
NUMBER = struct.Struct("<q")
"""Of a process, or its status; `NO_FORK` where there can be none."""
NO_FORK = -(1 << 32)
MAX_REASON = 1 << 16  # bytes
MAX_MESSAGE, MAX_DESCRIPTORS = 1 << 16, 253  # of a message to the first process; Linux takes no more

CAPACITY = 3 * MAX_JPEG_PIXELS  # bytes of an address range; only what an image fills takes memory
COMPUTING_S = 60  # for one image; the largest take five. Waiting for a slow storage does not count
MEMORY = 4 << 30  # bytes of address space besides what it begins with: a decoder that wants more fails alone


class Wanted(NamedTuple):
    """An image to read."""

    file: str
    number: int = 0
    """Its own among those that are kept decoded."""
    seed: int = 0
    """Of what is random about it."""


Prepare = Callable[[Wanted, Any], np.ndarray]
"""An image, and where decoded ones are kept (`decode_cache.Remember`, or None) → (H, W, 3), uint8.

Raises `UnreadableImageError`.
"""


@dataclass(frozen=True)
class Drafted:
    """Decodes, and nothing else."""

    short_side: int

    def __call__(self, wanted: Wanted, _: object) -> np.ndarray:
        return np.asarray(drafted(wanted.file, self.short_side))


class SharedCache(Protocol):
    """Memory of decoded images, as `decode_cache` has it."""

    @property
    def num_bytes(self) -> int:
        """At most."""

    def opened(self, files: Sequence[int], writer: int | None) -> object:
        """Its files → `decode_cache.Remember`; each writer has a number, and nobody else writes."""


@dataclass(frozen=True)
class Fork:
    """Asks for a process."""

    cache: SharedCache | None
    writer: int | None


def main() -> None:
    """The server: import the modules on its command line, then fork processes until it is alone."""
    end_with_parent()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    control = socket.socket(fileno=int(sys.argv[1]))
    with suppress(ConnectionError):  # as below: who asks may end at any moment
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
            with suppress(ConnectionError):  # who asks has ended before it read a reply, such as at a signal
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
    """Answer requests until there are no more."""
    cache = request.cache
    _limit_memory(cache.num_bytes if cache else 0)
    remember = cache.opened(files, request.writer) if cache else None
    memory = np.frombuffer(mmap.mmap(pixels, CAPACITY), np.uint8)
    with socket.socket(fileno=connection) as endpoint, endpoint.makefile("rwb") as stream:
        while header := stream.read(LENGTH.size):
            prepare, wanted = pickle.loads(stream.read(*LENGTH.unpack(header)))
            stream.writelines(_answers(prepare, wanted, remember, memory))
            stream.flush()


def _answers(
    prepare: Prepare, wanted: Sequence[Wanted], remember: object, memory: np.ndarray
) -> Iterator[bytes]:
    """The replies to one request; the pixels are laid one after the other."""
    end = 0
    for one in wanted:
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
    import resource  # Windows has none, and imports this module for its constants

    begun = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    wanted = begun + shared + MEMORY
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def _limit_computing() -> None:
    """Have the system end this process (SIGXCPU) if it computes for too long from now on."""
    import resource

    usage = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    end = int(usage.ru_utime + usage.ru_stime) + 1 + COMPUTING_S
    resource.setrlimit(resource.RLIMIT_CPU, (end if hard == resource.RLIM_INFINITY else min(end, hard), hard))
