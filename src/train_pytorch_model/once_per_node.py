"""What all processes of a node need alike: one of them makes it, the others map it into their memory.

It is in a file of the temporary folder, whose large parts are mapped and not copied: a node has one copy of a
million file names. The file is there from before it is made, for its lock, until the last process has read
it. Whatever is wrong with it, a process makes its own.

    int64           how many processes have yet to read it; -1 if there was no room for the rest
    int64, int64    the process that made it: its number, and when it began, as numbers are used again
    int64           bytes of the pickle
    pickle          (bytes of each large part, all else pickled)
    large parts     each at a multiple of 64 bytes
"""

import atexit
import errno
import hashlib
import mmap
import os
import pickle
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from train_pytorch_model.errors import UserError
from train_pytorch_model.process_table import start_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

PREFIX = "train_pytorch_model-inputs-"
POLL_S = 0.05
PATIENCE_S = 600.0  # so long the others wait for the one that makes it, which may be stopped for good
ALIGNMENT = 64
NO_ROOM = -1

_HEADER = struct.Struct("<qqqq")


@dataclass(frozen=True)
class Launch:
    """The processes of one command on one node."""

    name: str
    """Of any length; the same for all of them, and for no others."""
    num_processes: int


def once_per_node(launch: Launch, make: Callable[[], T]) -> T:
    """What `make` returns or, of `UserError`, raises; one process of the launch calls it, for all.

    Large parts that pickle out of band, such as arrays, come back read-only.
    """
    path = _path(launch)
    with _locked(path) as file:
        made = None if file is None else _read_or_make(file, path, launch.num_processes, make)
    if made is None:
        made = _made(make)
    if isinstance(made, UserError):
        raise made
    return made


@contextmanager
def offered(launch: Launch, value: object) -> Iterator[None]:
    """For a `with` in which the processes of the launch find it made, by one that is none of them."""
    path = _path(launch)
    with _locked(path) as file:
        if file is not None:
            _write(file, path, value, launch.num_processes)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink()


def _read_or_make(file: int, path: Path, readers: int, make: Callable[[], T]) -> T | UserError | None:
    """None where the file cannot hold it."""
    found: T | UserError | None = _read(file, path)
    if found is not None or _header_of(file).readers == NO_ROOM:
        return found
    _sweep(path.parent)
    made = _made(make)
    _write(file, path, made, readers)
    found = _read(file, path)  # mapped: the own copy goes
    return made if found is None else found


def _made(make: Callable[[], T]) -> T | UserError:
    try:
        return make()
    except UserError as error:  # all processes find the same mistake
        return error


def _path(launch: Launch) -> Path:
    name = hashlib.sha256(launch.name.encode(errors="surrogateescape")).hexdigest()
    return Path(tempfile.gettempdir()) / f"{PREFIX}{name[:32]}"


@contextmanager
def _locked(path: Path) -> Iterator[int | None]:
    """The file, for a `with` in which nobody else has it; None where that cannot be."""
    deadline = time.monotonic() + PATIENCE_S
    file = None
    with suppress(OSError):
        while (file := _take(path, os.O_CREAT)) is None and time.monotonic() < deadline:
            time.sleep(POLL_S)
    try:
        yield file
    finally:
        if file is not None:
            fcntl.flock(file, fcntl.LOCK_UN)  # a map of it would hold the lock
            os.close(file)


def _take(path: Path, flags: int = 0) -> int | None:
    """The file, opened and locked; None while another has it. Raises `OSError` where that cannot be."""
    if fcntl is None or start_of(os.getpid()) is None:
        raise OSError(errno.ENOTSUP, "nothing locks files here, or nothing tells which processes live")
    with ExitStack() as unless_taken:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
        unless_taken.callback(os.close, file)
        status = os.fstat(file)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
        if not is_ours or status.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "others may have written what would be unpickled", str(path))
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.lstat(), status):  # the last reader takes it away
                unless_taken.pop_all()
                return file
    return None


class _Header(NamedTuple):
    readers: int = 0
    pid: int = 0
    started: int = 0
    length: int = 0

    @property
    def is_of_living_process(self) -> bool:
        return start_of(self.pid) == str(self.started)


def _header_of(file: int) -> _Header:
    """Of zeros before it is made."""
    header = os.pread(file, _HEADER.size, 0)
    return _Header(*_HEADER.unpack(header)) if len(header) == _HEADER.size else _Header()


def _write(file: int, path: Path, value: object, readers: int) -> None:
    parts: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=parts.append)
    views = [part.raw() for part in parts]
    content = pickle.dumps(([len(view) for view in views], rest))
    header = _Header(readers, os.getpid(), int(start_of(os.getpid()) or 0), len(content))
    os.ftruncate(file, 0)
    try:
        with open(file, "wb", closefd=False) as stream:
            stream.seek(_HEADER.size)
            stream.write(content)
            for view in views:
                stream.seek(_aligned(stream.tell()))
                stream.write(view)
        os.pwrite(file, _HEADER.pack(*header), 0)
    except OSError:
        os.ftruncate(file, 0)
        with suppress(OSError):
            os.pwrite(file, _HEADER.pack(*header._replace(readers=NO_ROOM)), 0)
    atexit.register(_take_away, path, os.fstat(file))


def _read(file: int, path: Path) -> Any:
    """What is in the file, for one more reader; None if nothing is, or of a process that has ended."""
    header = _header_of(file)
    if header.readers <= 0 or not header.is_of_living_process:
        return None
    mapped = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
    end = _HEADER.size + header.length
    lengths, rest = pickle.loads(mapped[_HEADER.size : end])
    parts = []
    for length in lengths:
        start = _aligned(end)
        end = start + length
        parts.append(mapped[start:end])
    value = pickle.loads(rest, buffers=parts)
    os.pwrite(file, _HEADER.pack(*header._replace(readers=header.readers - 1)), 0)
    if header.readers == 1:
        path.unlink(missing_ok=True)
    return value


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _take_away(path: Path, status: os.stat_result) -> None:
    """At the end of the process that made it, if not all have read it."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), status):
            path.unlink()


def _sweep(folder: Path) -> None:
    """Take away what processes that were killed have left."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError), ExitStack() as opened:
            file = _take(path)
            if file is not None:
                opened.callback(os.close, file)
                if not _header_of(file).is_of_living_process:
                    path.unlink()
