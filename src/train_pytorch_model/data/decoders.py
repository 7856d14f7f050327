"""Decoding in separate processes: a crash or an endless loop costs one image, not the run.

Decoders are C code that reads untrusted files. In a thread, a crash would end the training, and end it again
at the same image when it is resumed. So each thread has a process (`decoder_process`) that decodes for it:
file names are sent through a socket, pixels come back through shared memory. That costs 0.3 ms per image of
500 x 375 px, a tenth of its decoding.

When many threads feed a GPU, these processes prepare the images completely, several at a time: 16 threads of
one Python process wait for each other so much that they prepare no more images than two.
"""

import itertools
import mmap
import os
import pickle
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import numpy as np

from train_pytorch_model.data.decoder_process import (
    CAPACITY,
    COMPUTING_S,
    LENGTH,
    MAX_REASON,
    NO_FORK,
    NUMBER,
    REPLY,
    Drafted,
    Fork,
    ImageRequest,
    Prepare,
    SharedCache,
)
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Pixels, decoded
from train_pytorch_model.machine.process_table import python_command
from train_pytorch_model.machine.sealed_file import sealed_file

PROGRAM = "from train_pytorch_model.data.decoder_process import main; main()"
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ATTEMPTS = 2  # something else may have killed the first process
MAX_RESTARTS = 3  # of the server
KEPT_BYTES = 16 << 20  # of shared memory that a process may keep after a request

T = TypeVar("T")


class Decoders:
    """A process for each calling thread, started with its first image.

    Where there can be none (macOS, Windows, a limit on processes), the thread does the work itself.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """The processes have imported `modules`, and end with the thread that calls this."""
        self._modules = modules
        self.share(None, ())
        self._of_thread = threading.local()
        self._all: list[_Decoder] = []  # to end them; `append` and `remove` are atomic
        self._servers: list[_Server] = []
        self._starting = threading.Lock()
        self._is_possible = hasattr(os, "memfd_create")
        if self._is_possible:
            try:
                self._servers.append(_Server(modules))
            except OSError:
                self._is_possible = False

    def share(self, cache: SharedCache | None, files: Sequence[int]) -> None:
        """Have processes started from now on cache decoded images in these files."""
        self._cache, self._files, self._writers = cache, files, itertools.count()

    def end(self) -> None:
        """End all processes. No thread may be using one any more."""
        for decoder in self._all:
            decoder.end()
        for server in self._servers:
            server.end()

    def decode(self, file: Path, short_side: int) -> Pixels:
        """Like `decoded`. Raises `UnreadableImageError`, also for a crash."""

        def question(decoder: _Decoder) -> Pixels:
            with decoder.answers(Drafted(short_side), [ImageRequest(os.fspath(file))]) as (pixels,):
                if isinstance(pixels, str):
                    raise UnreadableImageError(pixels)
                return pixels.copy()

        return self._ask(question, lambda: decoded(file, short_side))

    def prepare(
        self, prepare: Prepare, requests: Sequence[ImageRequest], places: np.ndarray
    ) -> list[str | None]:
        """Fill places (N, H, W, 3) with N images; returns for each why it cannot be read, or None.

        `prepare` must be defined in one of the `modules`.
        """
        decoder = self._decoder() if len(requests) > 1 else None
        if decoder is not None:
            try:
                with decoder.answers(prepare, requests) as answers:
                    return [_fill(place, pixels) for place, pixels in zip(places, answers, strict=True)]
            except _DeadError:  # any of these images may be the cause: retry them one by one
                self._forget(decoder)
        return [self._prepare_one(prepare, one, place) for one, place in zip(requests, places, strict=True)]

    def _prepare_one(self, prepare: Prepare, request: ImageRequest, place: np.ndarray) -> str | None:
        def question(decoder: _Decoder) -> str | None:
            with decoder.answers(prepare, [request]) as (pixels,):
                return _fill(place, pixels)

        try:
            return self._ask(question, lambda: _fill(place, prepare(request, None)))
        except UnreadableImageError as error:
            return str(error)

    def _ask(self, question: "Callable[[_Decoder], T]", here: Callable[[], T]) -> T:
        """The answer of this thread's process about one image, or that of `here` if there is no process.

        Raises `UnreadableImageError` for an image that ends the process, and what `question` raises.
        """
        fate = ""
        for _ in range(ATTEMPTS):
            decoder = self._decoder()
            if decoder is None and fate:  # not here: the image has just ended another process
                break
            if decoder is None:
                return here()
            try:
                return question(decoder)
            except _DeadError as death:
                self._forget(decoder)
                fate = str(death)
                if death.is_certain:
                    break
        raise UnreadableImageError(fate or "its decoder was killed twice")

    def _decoder(self) -> "_Decoder | None":
        """This thread's process; None where there can be none."""
        found: _Decoder | None = getattr(self._of_thread, "decoder", None)
        while found is None and self._is_possible:
            try:
                server = self._living_server()
            except OSError:
                self._is_possible = False
                return None
            try:
                # It is unknown how far an ended process had written, so its successor only reads the cache.
                found = _Decoder(server, Fork(self._cache, next(self._writers)), self._files)
            except OSError:
                self._is_possible = server.has_ended  # if so, a new server may start
                continue
            self._all.append(found)
            self._of_thread.decoder = found
        return found

    def _living_server(self) -> "_Server":
        """The current server, or a new one if it has ended, and with it all its forks. Raises `OSError`."""
        with self._starting:
            if self._servers[-1].has_ended:
                if len(self._servers) > MAX_RESTARTS:
                    raise ChildProcessError("the decoder server ends again and again")
                self._servers.append(_Server(self._modules))
            return self._servers[-1]

    def _forget(self, decoder: "_Decoder") -> None:
        self._all.remove(decoder)
        self._of_thread.decoder = None


class _DeadError(Exception):
    """A decoder has ended; the text says how, and is empty if it ended with its server."""

    def __init__(self, fate: str, is_certain: bool) -> None:
        super().__init__(fate)
        self.is_certain = is_certain
        """Whether nothing but the image can be the cause."""


class _Server:
    """The process that forks the decoders."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Start it. Raises `OSError` if that fails."""
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._speaking = threading.Lock()
        self._is_silent = False
        with theirs:
            try:
                self._process = subprocess.Popen(
                    (*python_command(PROGRAM), str(theirs.fileno()), *modules),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # so that Ctrl-C does not reach it
                    env={**os.environ, **SINGLE_THREADED},
                )
            except OSError:
                self._control.close()
                raise

    @property
    def has_ended(self) -> bool:
        """Whether it was killed, for instance by a system that is out of memory."""
        return self._is_silent or self._process.poll() is not None

    def fork(self, request: Fork, descriptors: Sequence[int]) -> int:
        """The id of a new process that serves the first descriptor. Raises `OSError` if there is none."""
        pid = self._ask(request, descriptors)
        if pid == NO_FORK:
            raise ChildProcessError("no more processes")
        return pid

    def kill(self, pid: int) -> int | None:
        """End a process, unless it has ended already; returns its status in the form of `Popen`'s.

        None if all processes have ended with this one.
        """
        try:
            if not self.has_ended:  # else its id may be another process's by now
                os.kill(pid, signal.SIGKILL)
            return self._ask(pid)
        except OSError:
            return None

    def end(self) -> None:
        """End the process, and with it all its forks."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, request: int | Fork, descriptors: Sequence[int] = ()) -> int:
        answer = b""
        with self._speaking, suppress(ConnectionError):  # the server has ended
            if not self._is_silent:
                socket.send_fds(self._control, [pickle.dumps(request)], descriptors)
                answer = self._control.recv(NUMBER.size)
        if not answer:
            self._is_silent = True
            raise ChildProcessError("the process that forks decoders has ended")
        number: int = NUMBER.unpack(answer)[0]
        return number


class _Decoder:
    """A process that answers one request at a time, and leaves pixels in shared memory."""

    def __init__(self, server: _Server, request: Fork, files: Sequence[int]) -> None:
        """Start it. Raises `OSError` if that fails."""
        self._server = server
        self._file = sealed_file("pixels", CAPACITY)
        endpoint, theirs = socket.socketpair()
        try:
            self._memory = mmap.mmap(self._file, CAPACITY)
            self.pid = server.fork(request, (theirs.fileno(), self._file, *files))
        except OSError:
            os.close(self._file)
            endpoint.close()
            raise
        finally:
            theirs.close()
        self._stream = endpoint.makefile("rwb")
        endpoint.close()  # the stream keeps the socket open

    @contextmanager
    def answers(self, prepare: Prepare, requests: Sequence[ImageRequest]) -> Iterator[list[Pixels | str]]:
        """The pixels of each image, or the reason why it cannot be read, for a `with`.

        Raises `_DeadError` if the process has ended.
        """
        request = pickle.dumps((prepare, requests))
        with suppress(OSError):  # then there is no reply
            self._stream.write(LENGTH.pack(len(request)) + request)
            self._stream.flush()
        found: list[Pixels | str] = []
        end = 0
        for _ in requests:
            height, width = REPLY.unpack(self._reply(REPLY.size))
            count = height * width * 3
            if count > CAPACITY - end or (height == 0 and width > MAX_REASON):
                self.end()
                raise _DeadError("its decoder sent an invalid reply", is_certain=True)
            if height == 0:
                found.append(self._reply(width).decode(errors="surrogateescape"))
                continue
            flat = np.frombuffer(self._memory, np.uint8, count, offset=end)
            found.append(flat.reshape(height, width, 3))
            end += count
        yield found
        if end > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE)

    def end(self) -> int | None:
        """End the process, unless it has ended already; returns its status as `_Server.kill` does."""
        status = self._server.kill(self.pid)
        with suppress(OSError):  # from flushing a request that is no longer read
            self._stream.close()
        os.close(self._file)  # the memory is unmapped once no pixels in it are referenced
        return status

    def _reply(self, size: int) -> bytes:
        found = b""
        with suppress(OSError):  # a request was not read completely
            found = self._stream.read(size)
        if len(found) < size:
            status = self.end()
            if status is None:
                raise _DeadError("", is_certain=False)
            if status == -signal.SIGXCPU:
                raise _DeadError(f"its decoder was still computing after {COMPUTING_S} s", is_certain=True)
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise _DeadError(f"its decoder crashed ({how})", is_certain=False)
        return found


def _fill(place: np.ndarray, pixels: Pixels | str) -> str | None:
    """Copy pixels into their place, or return the reason why there are none."""
    if isinstance(pixels, str):
        return pixels
    if pixels.shape != place.shape:
        return "its decoder sent an invalid reply"
    place[:] = pixels
    return None
