"""What C libraries write to standard error while they decode: lines that do not name the file."""

import os
import threading
from contextlib import suppress

MAX_LINE = 200  # characters
MAX_BYTES = 1 << 16  # read of what a library has written


class LibraryLines:
    """A context that keeps these lines from the terminal; several threads may be in it.

    It is short: whatever this process writes to standard error meanwhile is kept as well. On
    Windows and macOS it keeps nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_inside = 0
        self._file: int | None = None
        self._before: int | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._num_inside == 0:
                with suppress(OSError, AttributeError):  # no descriptor is left, or no memfd
                    self._divert()
            self._num_inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if self._num_inside == 0 and self._before is not None:
                os.dup2(self._before, 2)
                os.close(self._before)
                self._before = None

    def _divert(self) -> None:
        if self._file is None:
            self._file = os.memfd_create("lines", os.MFD_CLOEXEC)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        before = os.dup(2)
        os.dup2(self._file, 2)
        self._before = before

    def take(self) -> str:
        """Return the last line of the last time, in short; empty if there is none."""
        if self._file is None:
            return ""
        size = os.lseek(self._file, 0, os.SEEK_CUR)
        end = os.pread(self._file, MAX_BYTES, max(0, size - MAX_BYTES))
        lines = end.decode(errors="replace").split("\n")
        written = [line.strip() for line in lines if line.strip()]
        return written[-1][:MAX_LINE] if written else ""


# Of a decoder process, and of images that another one decodes itself, such as a page's pictures.
library_lines = LibraryLines()
