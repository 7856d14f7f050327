"""Decoding in processes of its own: a crash or an endless loop takes an image with it, not the run.

Decoders are C code that reads the files of strangers. In a thread, a fault of theirs would end the training,
and again at the same image when it is resumed. So each thread has a process (`decoder_process`) that decodes
for it: file names go there through a pipe, pixels come back through memory that both map. That costs 0.3 ms
an image of 500 x 375 px, a tenth of its decoding.
"""

import mmap
import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np

from train_pytorch_model.decoder_process import CAPACITY, COMPUTING_S, READY, REPLY, REQUEST
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Pixels, decoded
from train_pytorch_model.process_table import python_command

PROGRAM = "from train_pytorch_model.decoder_process import main; main()"
ATTEMPTS = 2  # somebody else may have killed the first process
KEPT = 16 << 20  # bytes of memory that a process may keep after an image


class Decoders:
    """A process for each thread that decodes, started with its first image.

    Where there can be none (macOS, Windows, a limit of processes) the thread decodes by itself.
    """

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._all: list[_Decoder] = []  # to end them; `append` and `remove` are atomic
        self._is_possible = hasattr(os, "memfd_create")

    def end(self) -> None:
        """End all processes. No thread may be decoding any more."""
        for decoder in self._all:
            decoder.end()

    def decode(self, file: Path, short_side: int) -> Pixels:
        """As `decoded` does. Raises `UnreadableImageError`, for a crash too."""
        fate = ""
        for _ in range(ATTEMPTS):
            decoder = self._decoder()
            if decoder is None and fate:  # not here, at what has just ended another process
                break
            if decoder is None:
                return decoded(file, short_side)
            try:
                return decoder.decode(file, short_side)
            except _DeadError as death:
                self._all.remove(decoder)
                self._of_thread.decoder = None
                fate = str(death)
                if death.is_certain:
                    break
        raise UnreadableImageError(fate)

    def _decoder(self) -> "_Decoder | None":
        """The one of this thread; None where there can be none."""
        found: _Decoder | None = getattr(self._of_thread, "decoder", None)
        if found is None and self._is_possible:
            try:
                found = _Decoder()
            except OSError:
                self._is_possible = False
                return None
            self._all.append(found)
            self._of_thread.decoder = found
        return found


class _DeadError(Exception):
    """A decoder is no more; the text says how it ended."""

    def __init__(self, fate: str, is_certain: bool) -> None:
        super().__init__(fate)
        self.is_certain = is_certain
        """Whether the image did it, and nobody else can have."""


class _Decoder:
    """A process that decodes one image at a time."""

    def __init__(self) -> None:
        """Start it. Raises `OSError` where it does not come up."""
        self._file = os.memfd_create("decoded image")
        try:
            os.ftruncate(self._file, CAPACITY)
            self._memory = mmap.mmap(self._file, CAPACITY)
            self._process = subprocess.Popen(
                (*python_command(PROGRAM), str(self._file)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(self._file,),
                process_group=0,  # Ctrl-C is not for it
            )
        except OSError:
            os.close(self._file)
            raise
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        if self._replies.read(len(READY)) != READY:
            self.end()
            raise ChildProcessError("a decoder ended as it began")

    def decode(self, file: Path, short_side: int) -> Pixels:
        """As `decoded` does. Raises `UnreadableImageError`, and `_DeadError` when this was the last."""
        name = os.fsencode(file)
        with suppress(BrokenPipeError):  # then there is no reply
            self._requests.write(REQUEST.pack(short_side, len(name)) + name)
            self._requests.flush()
        height, width = REPLY.unpack(self._reply(REPLY.size))
        if height == 0:
            raise UnreadableImageError(self._reply(width).decode(errors="surrogateescape"))
        shape = height, width, 3
        pixels = np.frombuffer(self._memory, np.uint8, height * width * 3).reshape(shape).copy()
        if pixels.nbytes > KEPT:
            os.ftruncate(self._file, 0)
            os.ftruncate(self._file, CAPACITY)
        return pixels

    def end(self) -> int:
        """End the process, if it has not ended before; returns its status as `Popen` does."""
        self._process.kill()
        status = self._process.wait()
        with suppress(BrokenPipeError):
            self._requests.close()
        self._replies.close()
        self._memory.close()
        os.close(self._file)
        return status

    def _reply(self, size: int) -> bytes:
        found = self._replies.read(size)
        if len(found) < size:
            status = self.end()
            if status == -signal.SIGXCPU:
                raise _DeadError(f"its decoder was still computing after {COMPUTING_S} s", is_certain=True)
            how = signal.Signals(-status).name if status < 0 else f"status {status}"
            raise _DeadError(f"its decoder crashed ({how})", is_certain=False)
        return found
