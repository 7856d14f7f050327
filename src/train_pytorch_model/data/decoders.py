"""Decoding in processes of its own: a crash or an endless loop takes an image with it, not the run.

Decoders are C code that reads the files of strangers. In a thread, a fault of theirs would end the training,
and again at the same image when it is resumed. So each thread has a process (`decoder_process`) that decodes
for it: file names go there through a socket, pixels come back through memory that both map. That costs 0.3 ms
an image of 500 x 375 px, a tenth of its decoding.

Where many threads feed a GPU, those processes do all that is done to an image, several images at a time: 16
threads of one Python wait for each other so much that they prepare no more than two do.
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
    Prepare,
    SharedCache,
    Wanted,
)
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Pixels, decoded
from train_pytorch_model.machine.process_table import python_command
from train_pytorch_model.machine.sealed_file import sealed_file

PROGRAM = "from train_pytorch_model.data.decoder_process import main; main()"
SINGLE_THREADED = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
ATTEMPTS = 2  # somebody else may have killed the first process
MAX_RESTARTS = 3  # of the process that forks the others
KEPT_BYTES = 16 << 20  # of memory, that a process may keep after a request

T = TypeVar("T")


class Decoders:
    """A process for each thread that asks, started with its first image.

    Where there can be none (macOS, Windows, a limit of processes) the thread does the work by itself.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """Processes that have imported `modules`, and end with the thread that this is called in."""
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
        """Have those that are still to be started keep decoded images in a cache of these files."""
        self._cache, self._files, self._writers = cache, files, itertools.count()

    def end(self) -> None:
        """End all processes. No thread may be asking any more."""
        for decoder in self._all:
            decoder.end()
        for server in self._servers:
            server.end()

    def decode(self, file: Path, short_side: int) -> Pixels:
        """As `decoded` does. Raises `UnreadableImageError`, for a crash too."""

        def question(decoder: _Decoder) -> Pixels:
            with decoder.answers(Drafted(short_side), [Wanted(os.fspath(file))]) as (pixels,):
                if isinstance(pixels, str):
                    raise UnreadableImageError(pixels)
                return pixels.copy()

        return self._ask(question, lambda: decoded(file, short_side))

    def prepare(self, prepare: Prepare, wanted: Sequence[Wanted], places: np.ndarray) -> list[str | None]:
        """Fill places (N, H, W, 3) with N images; for each the reason if it cannot be read.

        `prepare` is of one of the `modules`.
        """
        decoder = self._decoder() if len(wanted) > 1 else None
        if decoder is not None:
            try:
                with decoder.answers(prepare, wanted) as answers:
                    return [_fill(place, pixels) for place, pixels in zip(places, answers, strict=True)]
            except _DeadError:  # any of these images may have done it: each alone will tell
                self._forget(decoder)
        return [self._prepare_one(prepare, one, place) for one, place in zip(wanted, places, strict=True)]

    def _prepare_one(self, prepare: Prepare, wanted: Wanted, place: np.ndarray) -> str | None:
        def question(decoder: _Decoder) -> str | None:
            with decoder.answers(prepare, [wanted]) as (pixels,):
                return _fill(place, pixels)

        try:
            return self._ask(question, lambda: _fill(place, prepare(wanted, None)))
        except UnreadableImageError as error:
            return str(error)

    def _ask(self, question: "Callable[[_Decoder], T]", here: Callable[[], T]) -> T:
        """The answer of this thread's process about one image, or what is found `here`.

        Raises `UnreadableImageError` for an image that ends the process, and what the question raises.
        """
        fate = ""
        for _ in range(ATTEMPTS):
            decoder = self._decoder()
            if decoder is None and fate:  # not here, at what has just ended another process
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
        raise UnreadableImageError(fate or "its decoder was ended twice")

    def _decoder(self) -> "_Decoder | None":
        """The one of this thread; None where there can be none."""
        found: _Decoder | None = getattr(self._of_thread, "decoder", None)
        while found is None and self._is_possible:
            try:
                server = self._living_server()
            except OSError:
                self._is_possible = False
                return None
            try:
                # Where one has ended, nobody knows how far it had written; the next one only reads.
                found = _Decoder(server, Fork(self._cache, next(self._writers)), self._files)
            except OSError:
                self._is_possible = server.has_ended  # then another one may come up
                continue
            self._all.append(found)
            self._of_thread.decoder = found
        return found

    def _living_server(self) -> "_Server":
        """The last one; after its end, which ends all that it has forked, a new one. Raises `OSError`."""
        with self._starting:
            if self._servers[-1].has_ended:
                if len(self._servers) > MAX_RESTARTS:
                    raise ChildProcessError("decoders end again and again")
                self._servers.append(_Server(self._modules))
            return self._servers[-1]

    def _forget(self, decoder: "_Decoder") -> None:
        self._all.remove(decoder)
        self._of_thread.decoder = None


class _DeadError(Exception):
    """A decoder is no more; the text says how it ended, empty if it ended with its server."""

    def __init__(self, fate: str, is_certain: bool) -> None:
        super().__init__(fate)
        self.is_certain = is_certain
        """Whether the image did it, and nobody else can have."""


class _Server:
    """The process that forks the others."""

    def __init__(self, modules: Sequence[str]) -> None:
        """Start it. Raises `OSError` where there can be none."""
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
                    process_group=0,  # Ctrl-C is not for it
                    env={**os.environ, **SINGLE_THREADED},
                )
            except OSError:
                self._control.close()
                raise

    @property
    def has_ended(self) -> bool:
        """Somebody has killed it, such as a system that is out of memory."""
        return self._is_silent or self._process.poll() is not None

    def fork(self, request: Fork, descriptors: Sequence[int]) -> int:
        """A process that serves the first of the descriptors. Raises `OSError` where there is none."""
        pid = self._ask(request, descriptors)
        if pid == NO_FORK:
            raise ChildProcessError("no more processes")
        return pid

    def kill(self, pid: int) -> int | None:
        """End a process, if it has not ended before; returns its status as `Popen` has it.

        None where all of them ended with this one.
        """
        try:
            if not self.has_ended:  # or its number may be somebody else's by now
                os.kill(pid, signal.SIGKILL)
            return self._ask(pid)
        except OSError:
            return None

    def end(self) -> None:
        """End the process, and with it all that it has forked."""
        self._control.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, request: int | Fork, descriptors: Sequence[int] = ()) -> int:
        answer = b""
        with self._speaking, suppress(ConnectionError):  # nobody reads any more
            if not self._is_silent:
                socket.send_fds(self._control, [pickle.dumps(request)], descriptors)
                answer = self._control.recv(NUMBER.size)
        if not answer:
            self._is_silent = True
            raise ChildProcessError("the process that forks decoders has ended")
        number: int = NUMBER.unpack(answer)[0]
        return number


class _Decoder:
    """A process that answers one request at a time, and leaves pixels in memory that it shares."""

    def __init__(self, server: _Server, request: Fork, files: Sequence[int]) -> None:
        """Raises `OSError` where it does not come up."""
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
        endpoint.close()  # as far as the stream does not need it

    @contextmanager
    def answers(self, prepare: Prepare, wanted: Sequence[Wanted]) -> Iterator[list[Pixels | str]]:
        """The pixels of each image, for a `with`, or the reason why it cannot be read.

        Raises `_DeadError` when this was the last request.
        """
        request = pickle.dumps((prepare, wanted))
        with suppress(OSError):  # then there is no reply
            self._stream.write(LENGTH.pack(len(request)) + request)
            self._stream.flush()
        found: list[Pixels | str] = []
        end = 0
        for _ in wanted:
            height, width = REPLY.unpack(self._reply(REPLY.size))
            count = height * width * 3
            if count > CAPACITY - end or (height == 0 and width > MAX_REASON):
                self.end()
                raise _DeadError("its decoder answered nonsense", is_certain=True)
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
        """End the process, if it has not ended before; returns its status as `_Server.kill` does."""
        status = self._server.kill(self.pid)
        with suppress(OSError):  # of a request that nobody reads any more
            self._stream.close()
        os.close(self._file)  # the memory is unmapped when nobody looks at pixels in it any more
        return status

    def _reply(self, size: int) -> bytes:
        found = b""
        with suppress(OSError):  # a request was not read to its end
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
    """Lay pixels in their place, or return the reason why there are none."""
    if isinstance(pixels, str):
        return pixels
    if pixels.shape != place.shape:
        return "its decoder answered nonsense"
    place[:] = pixels
    return None
