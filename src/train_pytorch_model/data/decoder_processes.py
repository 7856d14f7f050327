"""Decoding in separate processes: a crash or an endless loop costs one image, not the run.

Decoders are C code that reads untrusted files: in a thread, a crash would end the training, and end
it again when it is resumed. So each thread has a process, forked in milliseconds by
`multiprocessing`'s server. Pickled requests go through a socket, pixels come back through shared
memory, and replies are JSON, since a process that has read untrusted files is not to be trusted.
That costs a tenth of decoding 500 x 375 px.

When many threads feed a GPU, these processes prepare the images completely, several at a time: 16
threads of one Python process wait for each other so much that they prepare no more images than two.
"""

import functools
import itertools
import json
import mmap
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from train_pytorch_model.data.cache import DecodeCache, SharedCache
from train_pytorch_model.data.requests import CachedDecode, ImageRequest, Prepare, uncached
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.decoding import AS_USUAL, Colours, UnreadableImageError

if TYPE_CHECKING:
    from train_pytorch_model.image_classifier.pixels import Pixels


HAS_PROCESSES = hasattr(os, "memfd_create")  # Linux
ATTEMPTS = 2  # something else may have killed the first process, or a pause counted as computing
NO_MEMORY = "MemoryError"  # the reason that a process gives
KEPT_BYTES = 16 << 20  # of shared memory that a process may keep after a request
CAPACITY = (
    3 * decoding.MAX_JPEG_PIXELS
)  # bytes of address space; only the pages that images fill take memory
COMPUTING_S = (
    60  # CPU time for one image; the largest take five. Waiting for slow storage does not count
)
MEMORY = (
    4 << 30
)  # bytes of address space beyond the initial ones: only a decoder that needs more fails


@dataclass(frozen=True)
class Draft:
    """Decodes only; a `Prepare` that needs no PyTorch."""

    short_side: int
    colours: Colours

    def __call__(self, request: ImageRequest, _: object) -> np.ndarray:
        return np.asarray(decoding.decode(request.file, self.short_side, self.colours))


def highest_value_as_pixel(request: ImageRequest, _: object) -> np.ndarray:
    """A `Prepare`: the highest value of a grey image as a single pixel (1, 1, 3), the high byte
    first.
    """
    high, low = divmod(decoding.highest_value(request.file), 256)
    return np.array([[[high, low, 0]]], np.uint8)


def fill(slots: np.ndarray, reads: "Iterable[Callable[[], Pixels]]") -> list[str | None]:
    """Fill slots (N, H, W, 3) with N images; return for each why it cannot be read, or None."""
    reasons: list[str | None] = []
    for slot, read in zip(slots, reads, strict=True):
        try:
            slot[:] = read()
            reasons.append(None)
        except UnreadableImageError as error:
            reasons.append(str(error))
    return reasons


class Decoders:
    """A process for each calling thread; the thread itself on macOS and Windows, or where none
    works."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """The server of the processes imports `modules`, in the background, unless it runs already."""
        self.share(None)
        self._of_thread = threading.local()
        self._all: list[_Decoder] = []  # to end them; `append` and `remove` are atomic
        self._starting = threading.Lock()
        self._is_possible = HAS_PROCESSES
        self._has_worked = False
        if self._is_possible:
            from multiprocessing import forkserver  # not on Windows

            forkserver.set_forkserver_preload([__name__, *modules])
            try:
                with _without_main_module():
                    forkserver.ensure_running()
            except OSError as error:
                self._give_up(str(error))

    def share(self, cache: SharedCache | None) -> None:
        """Have processes started from now on keep decoded images in this cache."""
        self._cache, self._writers = cache, itertools.count()

    def close(self) -> None:
        """End all processes. No thread may be using one any more."""
        for decoder in self._all:
            decoder.end()

    def decode(self, file: Path, short_side: int, colours: Colours = AS_USUAL) -> "Pixels":
        """Like `decode_pixels`. Raises `UnreadableImageError`, also for a crash."""
        return self.prepare_one(Draft(short_side, colours), ImageRequest(os.fspath(file)))

    def prepare(
        self, how: Prepare, requests: Sequence[ImageRequest], slots: np.ndarray
    ) -> list[str | None]:
        """Like `fill`, with what a process prepares."""
        decoder = self._decoder() if len(requests) > 1 else None
        if decoder is not None:
            reasons: list[str | None] = []
            try:
                for slot, answer in zip(slots, decoder.answer(how, requests), strict=True):
                    reasons.append(answer if isinstance(answer, str) else None)
                    if not isinstance(answer, str):
                        slot[:] = answer
                self._has_worked |= None in reasons
                return reasons
            except _DeadError:  # any of these images may be the cause: retry them one by one
                self._forget(decoder)
        return fill(
            slots, (functools.partial(self.prepare_one, how, request) for request in requests)
        )

    def prepare_one(self, prepare: Prepare, request: ImageRequest) -> "Pixels":
        """An image's pixels, writable.

        Raises `UnreadableImageError`, also if it ends its process.
        """
        trouble = ""
        for _ in range(ATTEMPTS):
            if (decoder := self._decoder()) is None:
                break
            try:
                answers = decoder.answer(prepare, [request])
                (answer,) = [each if isinstance(each, str) else each.copy() for each in answers]
            except _DeadError as error:
                self._forget(decoder)
                trouble = str(error)
                continue
            if not isinstance(answer, str):
                self._has_worked = True
                return answer
            if answer != NO_MEMORY:
                raise UnreadableImageError(answer)
            trouble = answer
            break
        if trouble and (self._has_worked or self._can_decode()):
            raise UnreadableImageError(trouble)
        if trouble:  # the image is not to blame
            self._give_up(trouble)
        return np.require(prepare(request, uncached), requirements=["W"])

    def _can_decode(self) -> bool:
        """Whether a process decodes an image that is known to be good."""
        decoder = self._decoder()
        if decoder is None:
            return False
        with NamedTemporaryFile(suffix=".png") as file:
            Image.new("RGB", (8, 8)).save(file, "PNG")
            file.flush()
            try:
                (answer,) = decoder.answer(Draft(8, AS_USUAL), [ImageRequest(file.name)])
                return not isinstance(answer, str)
            except _DeadError:
                self._forget(decoder)
                return False

    def _give_up(self, reason: str) -> None:
        """Have threads do the work from now on, and say so once."""
        if self._is_possible:
            from train_pytorch_model.machine.console import (
                logger,
            )  # with rich, which no process needs

            logger.warning(
                "Images are decoded by threads: processes that would do it cannot work here"
                f" ({reason})."
                " An image that crashes a decoder ends the program."
            )
        self._is_possible = False

    def _decoder(self) -> "_Decoder | None":
        """This thread's process; None where there can be none."""
        decoder: _Decoder | None = getattr(self._of_thread, "decoder", None)
        if decoder is None and self._is_possible:
            try:
                # It is unknown how far an ended process had written, so its successor only reads
                # the cache.
                decoder = _Decoder(self._cache, next(self._writers), self._starting)
            except (OSError, EOFError) as error:
                self._give_up(str(error) or "they end at once")
                return None
            self._all.append(decoder)
            self._of_thread.decoder = decoder
        return decoder

    def _forget(self, decoder: "_Decoder") -> None:
        self._all.remove(decoder)
        self._of_thread.decoder = None


class _DeadError(Exception):
    """A decoder has ended; the text says how."""


class _Decoder:
    """A process that answers one request at a time."""

    def __init__(self, cache: SharedCache | None, writer: int, starting: threading.Lock) -> None:
        """Start it. Raises `OSError` or `EOFError` if that fails."""
        self._starting = starting
        file = os.memfd_create("pixels", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, CAPACITY)
            self._memory = mmap.mmap(file, CAPACITY)
            self._connection, theirs = multiprocessing.Pipe()
            with (
                theirs,
                starting,
            ):  # the list of processes of `multiprocessing` is not for several threads
                context = multiprocessing.get_context("forkserver")
                arguments = theirs, Path.cwd(), cache, writer
                self._process = context.Process(target=serve, args=arguments, daemon=True)
                with _without_main_module():
                    self._process.start()
            self.pid = self._process.pid or 0
            for descriptor in (file, *([cache.file] if cache else [])):
                reduction.send_handle(self._connection, descriptor, self.pid)
        finally:
            os.close(file)
        self._connection.recv_bytes()  # it is ready

    def answer(
        self, prepare: Prepare, requests: Sequence[ImageRequest]
    ) -> "Iterator[Pixels | str]":
        """Yield pixels, valid until the next ones, or a reason; raises `_DeadError` before the
        first.
        """
        try:
            self._connection.send_bytes(pickle.dumps((prepare, requests)))
            replies = json.loads(self._connection.recv_bytes())
        except (OSError, EOFError):
            status = self.end() or 0
            if status == -signal.SIGXCPU:
                raise _DeadError(f"its decoder was still computing after {COMPUTING_S} s") from None
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise _DeadError(f"its decoder crashed ({how})") from None
        end = 0
        for reply in replies:
            if isinstance(reply, str):
                yield reply
                continue
            height, width = reply
            start, end = end, end + height * width * 3
            yield np.frombuffer(self._memory, np.uint8, end - start, start).reshape(
                height, width, 3
            )
        if end > KEPT_BYTES:
            self._memory.madvise(mmap.MADV_REMOVE)

    def end(self) -> int | None:
        """Wait for its end, as soon as it is idle; return its status in the form of `Popen`'s."""
        self._connection.close()
        with self._starting:
            self._process.join()
        return self._process.exitcode


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Start processes without the main module: it may be a user's script, which they would run
    again.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def serve(connection: Connection, folder: Path, cache: SharedCache | None, writer: int) -> None:
    """Receive the descriptors of pixels and cache, then answer requests until the connection is
    closed.
    """
    os.setpgid(0, 0)  # so that Ctrl-C does not reach this process
    os.chdir(folder)  # to which names of files are relative
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(1)  # the other cores have processes of their own
    # The other end is closed, for instance at a signal, or there is no memory: that process will
    # notice.
    with suppress(EOFError, OSError):
        pixels = np.frombuffer(mmap.mmap(reduction.recv_handle(connection), CAPACITY), np.uint8)
        remember: CachedDecode = uncached
        if cache is not None:
            remember = DecodeCache(replace(cache, file=reduction.recv_handle(connection)), writer)
        with suppress(OSError):  # without /proc there is no limit
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            _limit("RLIMIT_AS", pages * os.sysconf("SC_PAGE_SIZE") + MEMORY)
        connection.send_bytes(b"ready")
        while True:
            prepare, requests = pickle.loads(connection.recv_bytes())
            connection.send_bytes(
                json.dumps(list(_answer(prepare, requests, remember, pixels))).encode()
            )


def _answer(
    prepare: Prepare, requests: Sequence[ImageRequest], remember: CachedDecode, memory: np.ndarray
) -> Iterator[tuple[int, int] | str]:
    """Yield the reply for each image; the pixels are written to `memory` one after the other."""
    end = 0
    for request in requests:
        times = (
            os.times()
        )  # with more CPU time from now on, the system kills this process (SIGXCPU)
        _limit("RLIMIT_CPU", int(times.user + times.system) + 1 + COMPUTING_S)
        try:
            pixels = prepare(request, remember)
        except (UnreadableImageError, MemoryError) as error:
            yield str(error) or type(error).__name__
            continue
        start, end = end, end + pixels.size
        memory[start:end].reshape(pixels.shape)[:] = pixels
        yield pixels.shape[0], pixels.shape[1]


def _limit(name: str, value: int) -> None:
    import resource  # not on Windows

    kind = getattr(resource, name)
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
