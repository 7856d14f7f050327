"""The bytes of a tar, maybe a packed one, and what is said of damaged ones."""

import io
import os
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from train_pytorch_model.formats.files import CHUNK_BYTES, MalformedFileError

MAX_HEADER_BYTES = 4 << 20  # of what a tar says about one member

# What a stream of damaged data makes of gzip, bz2, zipfile and tarfile.
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
    """Unpacked bytes as tarfile reads them: forwards, and counted."""

    def __init__(self, stream: IO[bytes], can_seek: bool, check: Callable[[int], None]) -> None:
        """`check` is told how many bytes have been unpacked, and may raise."""
        self._stream, self._can_seek, self._check = stream, can_seek, check
        self._position = 0
        self._behind = 0  # tarfile steps one byte back to see whether there was one
        self._allowed = 0
        self.last_read = b""

    def allow(self, count: int) -> None:
        """From here on, no more than `count` bytes may be read; skipping is free."""
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
            raise MalformedFileError(f"it says more than {MAX_HEADER_BYTES:,} bytes about one member.")
        seen = bytes(min(self._behind, size))
        self._behind = 0
        self.last_read = seen + self._take(size - len(seen))
        return self.last_read

    def chunks(self, position: int, size: int) -> Iterator[bytes]:
        """The `size` bytes from `position` on."""
        self.seek(position)
        while size:
            chunk = self._take(min(size, CHUNK_BYTES))
            if not chunk:
                raise damaged(EOFError("the end came within a file"))
            size -= len(chunk)
            yield chunk

    def drain(self) -> None:
        """Read to the end, where gzip and bzip2 have their checksums."""
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
    """What to raise for one of `DAMAGE`."""
    return MalformedFileError(f"it is damaged or cut short: {one_line(error)}.")


def one_line(error: BaseException) -> str:
    """What an error says, or else what it is, in 200 characters at most."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]
