"""A process that prepares images for one thread: a crash or an endless loop ends it, not the run.

Pickled requests go through a socket, pixels come back through shared memory, and replies are JSON,
since a process that has read untrusted files is not to be trusted. That costs a tenth of decoding
500 x 375 px.
"""

import json
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import numpy as np

from train_pytorch_model.data.cache import DecodeCache, SharedCache
from train_pytorch_model.data.requests import ImageRequest, Prepare
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.decoding import Pixels, UnreadableImageError
from train_pytorch_model.image_classifier.pillow_settings import pillow_for_decoding
from train_pytorch_model.machine.library_lines import library_lines

KEPT_BYTES = 16 << 20  # of shared memory that a process may keep after a request
# Bytes of address space for pixels; only the pages that images fill take memory.
CAPACITY = 3 * decoding.MAX_JPEG_PIXELS
# CPU time for one image; the largest take five. Waiting for slow storage does not count.
COMPUTING_S = 60
# Bytes of address space beyond the initial ones: only a decoder that needs more fails.
MEMORY = 4 << 30


class DecoderDiedError(Exception):
    """A decoder process has ended; the text says how."""


class DecoderProcess:
    """A process that answers one request at a time."""

    def __init__(self, cache: SharedCache | None, writer: int, starting: threading.Lock) -> None:
        """Start it. Raises `OSError` or `EOFError` if that fails."""
        # The list of processes of `multiprocessing` is not for several threads.
        self._starting = starting
        file = os.memfd_create("pixels", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, CAPACITY)
            self._memory = mmap.mmap(file, CAPACITY)
            self._connection, theirs = multiprocessing.Pipe()
            with theirs, starting:
                context = multiprocessing.get_context("forkserver")
                arguments = (theirs, Path.cwd(), cache, writer)
                self._process = context.Process(target=serve, args=arguments, daemon=True)
                with without_main_module():
                    self._process.start()
            self.pid = self._process.pid or 0
            reduction.send_handle(self._connection, file, self.pid)
            if cache is not None:
                reduction.send_handle(self._connection, cache.file, self.pid)
        finally:
            os.close(file)
        self._connection.recv_bytes()  # it is ready

    def answer(self, prepare: Prepare, requests: Sequence[ImageRequest]) -> Iterator[Pixels | str]:
        """Yield for each image its pixels, valid until the next request, or why it is unreadable.

        Raises `DecoderDiedError` before the first.
        """
        try:
            self._connection.send_bytes(pickle.dumps((prepare, requests)))
            replies = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError):
            raise DecoderDiedError(self._how_it_died()) from None
        end = 0
        for reply in replies:
            if isinstance(reply, str):
                yield reply
                continue
            height, width = reply
            start = end
            end += height * width * 3
            pixels = np.frombuffer(self._memory, np.uint8, end - start, start)
            yield pixels.reshape(height, width, 3)
        if end > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE)

    def _how_it_died(self) -> str:
        status = self.end() or 0
        if status == -signal.SIGXCPU:
            return f"its decoder was still computing after {COMPUTING_S} s"
        how = signal.Signals(-status).name if status < 0 else f"status {status}"
        return f"its decoder crashed ({how})"

    def end(self) -> int | None:
        """Wait for its end, as soon as it is idle; return its status in the form of `Popen`'s."""
        self._connection.close()
        with self._starting:
            self._process.join()
        return self._process.exitcode


@contextmanager
def without_main_module() -> Iterator[None]:
    """Hide the main module: processes would run it again, and it may be a user's script."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def serve(connection: Connection, folder: Path, cache: SharedCache | None, writer: int) -> None:
    """Receive the descriptors of pixels and cache, then answer requests.

    Ends when the connection is closed.
    """
    os.setpgid(0, 0)  # so that Ctrl-C does not reach this process
    os.chdir(folder)  # to which names of files are relative
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # the other cores have their processes
    # The other end is closed, for instance at a signal, or there is no memory: that process will
    # notice.
    with suppress(EOFError, OSError), pillow_for_decoding:
        pixels = np.frombuffer(mmap.mmap(reduction.recv_handle(connection), CAPACITY), np.uint8)
        images = None
        if cache is not None:
            images = DecodeCache(replace(cache, file=reduction.recv_handle(connection)), writer)
        with suppress(OSError):  # without /proc there is no limit
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + MEMORY)
        connection.send_bytes(b"ready")
        while True:
            prepare, requests = pickle.loads(connection.recv_bytes())
            replies = list(_replies(prepare, requests, images, pixels))
            connection.send_bytes(json.dumps(replies).encode())


def _replies(
    prepare: Prepare,
    requests: Sequence[ImageRequest],
    cache: DecodeCache | None,
    memory: np.ndarray,
) -> Iterator[tuple[int, int] | str]:
    """Yield for each image its height and width, or why it is unreadable.

    The pixels are written to `memory` one after the other.
    """
    end = 0
    for request in requests:
        # With more CPU time from now on, the system kills this process (SIGXCPU).
        times = os.times()
        _limit("RLIMIT_CPU", int(times.user + times.system) + 1 + COMPUTING_S)
        try:
            with library_lines:
                pixels = prepare(request, cache)
        except UnreadableImageError as error:
            line = library_lines.take()
            yield f"{error} ({line})" if line else str(error)
            continue
        except MemoryError as error:
            yield str(error) or type(error).__name__
            continue
        start = end
        end += pixels.size
        memory[start:end].reshape(pixels.shape)[:] = pixels
        yield pixels.shape[0], pixels.shape[1]


def _limit(name: str, value: int) -> None:
    """Set a limit of this process, at most the hard one."""
    import resource  # not on Windows

    kind = getattr(resource, name)
    _, hard = resource.getrlimit(kind)
    soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (soft, hard))
