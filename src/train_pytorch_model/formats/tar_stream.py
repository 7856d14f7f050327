"""The byte stream of a tar, compressed or not, and the errors for damaged ones."""

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.writing import CHUNK_BYTES

MAX_HEADER_BYTES = 4 << 20  # of all headers of one member

# What gzip, bz2, zipfile and tarfile raise for damaged data.
DAMAGE = (
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


class TarStream(io.RawIOBase):
    """The unpacked bytes for tarfile to read: forwards only, and counted."""

    def __init__(self, stream: IO[bytes], can_seek: bool, check: Callable[[int], None]) -> None:
        """`check` is called with the number of bytes unpacked so far, and may raise."""
        self._stream, self._can_seek, self._check = stream, can_seek, check
        self._position = 0
        self._behind = 0  # bytes: tarfile seeks one byte back to detect truncation
        self._allowed = 0
        self.last_read = b""

    def allow(self, count: int) -> None:
        """Allow at most `count` bytes to be read from here on; seeking is free."""
        self._allowed = count

    def tell(self) -> int:
        return self._position - self._behind

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET
        back = self._position - position
        if back > 1:
            raise tarfile.ReadError("its members overlap")
        self._behind = max(back, 0)
        if back < 0 and self._can_seek:
            self._position = self._stream.seek(position)
        while self._position < position and self._take(min(position - self._position, CHUNK_BYTES)):
            pass
        return position

    def read(self, size: int = -1) -> bytes:
        self._allowed -= size
        if size < 0 or self._allowed < 0:
            raise MalformedFileError(f"the headers of one member exceed {MAX_HEADER_BYTES:,} bytes.")
        seen = bytes(min(self._behind, size))
        self._behind = 0
        self.last_read = seen + self._take(size - len(seen))
        return self.last_read

    def chunks(self, position: int, size: int) -> Iterator[bytes]:
        """Yield the `size` bytes from `position` on."""
        self.seek(position)
        while size:
            chunk = self._take(min(size, CHUNK_BYTES))
            if not chunk:
                raise damaged(EOFError("the data ends within a file"))
            size -= len(chunk)
            yield chunk

    def drain(self) -> None:
        """Read to the end, where gzip and bzip2 verify their checksums."""
        while self._take(CHUNK_BYTES):
            pass

    def _take(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except DAMAGE as error:
            raise damaged(error) from error
        self._position += len(data)
        self._check(self._position)
        return data


def damaged(error: Exception) -> MalformedFileError:
    """The error to raise for one of `DAMAGE`."""
    return MalformedFileError(f"it is damaged or cut short: {one_line(error)}.")


def one_line(error: BaseException) -> str:
    """The text of an error, or else its type, in at most 200 characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
