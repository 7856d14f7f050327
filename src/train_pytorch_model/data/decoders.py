"""Decoding in separate processes: a crash or an endless loop costs one image, not the run.

Decoders are C code that reads untrusted files: in a thread, a crash would end the training, and end
it again when it is resumed. So each thread has a process, forked in milliseconds by
`multiprocessing`'s server.

When many threads feed a GPU, these processes prepare the images completely, several at a time: 16
threads of one Python process wait for each other so much that they prepare no more images than two.
"""

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from PIL import Image

from train_pytorch_model.data import decoder_process
from train_pytorch_model.data.cache import SharedCache
from train_pytorch_model.data.decoder_process import (
    DecoderDiedError,
    DecoderProcess,
    without_main_module,
)
from train_pytorch_model.data.requests import ImageRequest, Prepare
from train_pytorch_model.image_classifier import decoding
from train_pytorch_model.image_classifier.colours import DEFAULT_COLOURS, Colours
from train_pytorch_model.image_classifier.decoding import Pixels, UnreadableImageError

HAS_PROCESSES = hasattr(os, "memfd_create")  # Linux
ATTEMPTS = 2  # something else may have killed the first process, or a pause counted as computing
NO_MEMORY = "MemoryError"  # the reason that a process gives


@dataclass(frozen=True)
class DecodeOnly:
    """A `Prepare` that only decodes, which needs no PyTorch."""

    short_side: int
    colours: Colours

    def __call__(self, request: ImageRequest, _: object) -> Pixels:
        return np.asarray(decoding.decode(request.file, self.short_side, self.colours))


def highest_value_as_pixel(request: ImageRequest, _: object) -> Pixels:
    """Return the highest value of a grey image as a single pixel (1, 1, 3), the high byte first.

    It is a `Prepare`.
    """
    high, low = divmod(decoding.highest_value(request.file), 256)
    return np.array([[[high, low, 0]]], np.uint8)


def fill(slots: np.ndarray, reads: Iterable[Callable[[], Pixels]]) -> list[str | None]:
    """Fill slots (N, H, W, 3) with N images; return for each why it is unreadable, or None."""
    reasons: list[str | None] = []
    for slot, read in zip(slots, reads, strict=True):
        try:
            slot[:] = read()
            reasons.append(None)
        except UnreadableImageError as error:
            reasons.append(str(error))
    return reasons


class Decoders:
    """A process for each calling thread.

    On macOS and Windows, or where none works, the thread decodes.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        """Start the server of the processes, which imports `modules`, unless it runs already."""
        self.use_cache(None)
        self._of_thread = threading.local()
        self._all: list[DecoderProcess] = []  # to end them; `append` and `remove` are atomic
        self._starting = threading.Lock()
        self._is_possible = HAS_PROCESSES
        self._has_worked = False
        if self._is_possible:
            from multiprocessing import forkserver  # not on Windows

            forkserver.set_forkserver_preload([decoder_process.__name__, __name__, *modules])
            try:
                with without_main_module():
                    forkserver.ensure_running()
            except OSError as error:
                self._give_up(str(error))

    def use_cache(self, cache: SharedCache | None) -> None:
        """Have processes started from now on read and fill this cache."""
        self._cache = cache
        self._writers = itertools.count()

    def close(self) -> None:
        """End all processes. No thread may be using one any more."""
        for process in self._all:
            process.end()

    def decode(self, file: Path, short_side: int, colours: Colours = DEFAULT_COLOURS) -> Pixels:
        """Decode like `decode_pixels`. Raises `UnreadableImageError`, also for a crash."""
        return self.prepare_one(DecodeOnly(short_side, colours), ImageRequest(os.fspath(file)))

    def prepare(
        self, prepare: Prepare, requests: Sequence[ImageRequest], slots: np.ndarray
    ) -> list[str | None]:
        """Fill slots (N, H, W, 3) with N images; return for each why it is unreadable, or None."""
        process = self._process() if len(requests) > 1 else None
        if process is not None:
            try:
                return self._fill_by(process, prepare, requests, slots)
            except DecoderDiedError:  # any of these images may be the cause: retry them one by one
                self._forget(process)
        return fill(slots, (partial(self.prepare_one, prepare, request) for request in requests))

    def _fill_by(
        self,
        process: DecoderProcess,
        prepare: Prepare,
        requests: Sequence[ImageRequest],
        slots: np.ndarray,
    ) -> list[str | None]:
        reasons: list[str | None] = []
        for slot, answer in zip(slots, process.answer(prepare, requests), strict=True):
            if isinstance(answer, str):
                reasons.append(answer)
            else:
                slot[:] = answer
                reasons.append(None)
        self._has_worked |= None in reasons
        return reasons

    def prepare_one(self, prepare: Prepare, request: ImageRequest) -> Pixels:
        """Return an image's pixels, writable.

        Raises `UnreadableImageError`, also if it ends its process.
        """
        trouble = ""
        for _ in range(ATTEMPTS):
            process = self._process()
            if process is None:
                break
            try:
                answer = _answer_one(process, prepare, request)
            except DecoderDiedError as error:
                self._forget(process)
                trouble = str(error)
                continue
            if not isinstance(answer, str):
                self._has_worked = True
                return answer
            if answer != NO_MEMORY:
                raise UnreadableImageError(answer)
            trouble = answer
            break
        if trouble:
            self._blame_image_or_give_up(trouble)
        return np.require(prepare(request, None), requirements=["W"])

    def _blame_image_or_give_up(self, trouble: str) -> None:
        """Raise `UnreadableImageError` if processes work here, so that the image is to blame."""
        if self._has_worked or self._can_decode():
            raise UnreadableImageError(trouble)
        self._give_up(trouble)

    def _can_decode(self) -> bool:
        """Return whether a process decodes an image that is known to be good."""
        process = self._process()
        if process is None:
            return False
        with NamedTemporaryFile(suffix=".png") as file:
            Image.new("RGB", (8, 8)).save(file, "PNG")
            file.flush()
            try:
                answer = _answer_one(
                    process, DecodeOnly(8, DEFAULT_COLOURS), ImageRequest(file.name)
                )
            except DecoderDiedError:
                self._forget(process)
                return False
        return not isinstance(answer, str)

    def _give_up(self, reason: str) -> None:
        """Have threads do the work from now on, and say so once."""
        if self._is_possible:
            # With rich, which no process needs.
            from train_pytorch_model.machine.console import logger

            logger.warning(
                "Images are decoded by threads: processes that would do it cannot work here"
                f" ({reason}). An image that crashes a decoder ends the program."
            )
        self._is_possible = False

    def _process(self) -> DecoderProcess | None:
        """Return this thread's process, started if it has none; None where there can be none."""
        process: DecoderProcess | None = getattr(self._of_thread, "process", None)
        if process is None and self._is_possible:
            try:
                # It is unknown how far an ended process had written, so its successor only reads
                # the cache.
                process = DecoderProcess(self._cache, next(self._writers), self._starting)
            except (OSError, EOFError) as error:
                self._give_up(str(error) or "they end at once")
                return None
            self._all.append(process)
            self._of_thread.process = process
        return process

    def _forget(self, process: DecoderProcess) -> None:
        self._all.remove(process)
        self._of_thread.process = None


def _answer_one(process: DecoderProcess, prepare: Prepare, request: ImageRequest) -> Pixels | str:
    """Return a copy of an image's pixels, or why it is unreadable. Raises `DecoderDiedError`."""
    copies = [
        answer if isinstance(answer, str) else answer.copy()
        for answer in process.answer(prepare, [request])
    ]
    (answer,) = copies
    return answer
