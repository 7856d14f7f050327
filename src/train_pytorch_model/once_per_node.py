"""What all processes of a node need alike: one of them makes it, the others map it into their memory.

It is in a file of the temporary folder, whose large parts are mapped and not copied: a node has one copy of a
million file names. An empty file of its name is there before, for its lock. Nobody writes over what others
may have mapped: what is made takes the name of what was there. It goes when the last process has read it.
Whatever is wrong with it, a process makes its own; so does each on systems without `/proc`.

    int64           how many processes have yet to read it; 0 while it is made, -1 if there was no room for it
    int64, int64    the process that makes it: its number, and when it began, as numbers are used again
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
from train_pytorch_model.machine.process_table import is_stopped, start_of

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

PREFIX = "train_pytorch_model-inputs-"
POLL_S = 0.05
PATIENCE_S = 60.0  # in all that the others wait for one that does nothing, as after SIGSTOP
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
    with _locked(launch) as place:
        found: T | UserError | None = None
        if place is not None:
            found = place.read()
            if found is None and place.has_room:
                found = place.keep(_made(make), readers=launch.num_processes - 1)
    if found is None:
        found = _made(make)
    if isinstance(found, UserError):
        raise found
    return found


@contextmanager
def offered(launch: Launch, value: object) -> Iterator[None]:
    """For a `with` in which the processes of the launch find it made, by one that is none of them."""
    with ExitStack() as at_the_end:
        with _locked(launch) as place:
            if place is not None:
                place.keep(value, readers=launch.num_processes)
                at_the_end.callback(place.path.unlink, missing_ok=True)
        yield


def _made(make: Callable[[], T]) -> T | UserError:
    try:
        return make()
    except UserError as error:  # all processes find the same mistake
        return error


class _Header(NamedTuple):
    readers: int = 0
    pid: int = 0
    started: int = 0
    length: int = 0

    @classmethod
    def of_this_process(cls, readers: int, length: int = 0) -> "_Header":
        return cls(readers, os.getpid(), int(start_of(os.getpid()) or 0), length)

    @classmethod
    def read(cls, file: int) -> "_Header":
        """Of zeros where there is none yet. Raises `OSError`."""
        header = os.pread(file, _HEADER.size, 0)
        return cls(*_HEADER.unpack(header)) if len(header) == _HEADER.size else cls()

    def write(self, file: int) -> None:
        os.pwrite(file, _HEADER.pack(*self), 0)

    @property
    def is_of_living_process(self) -> bool:
        return start_of(self.pid) == str(self.started)


class _Place:
    """The file, which this process has locked."""

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file = path, file
        self._header = _Header.read(file)
        if not self._header.is_of_living_process:
            self._header = _Header.of_this_process(readers=0)
            self._header.write(file)  # for those who wait

    @property
    def has_room(self) -> bool:
        return self._header.readers != NO_ROOM

    def read(self) -> Any:
        """What a living process has made, for one more reader; None if nothing."""
        left = self._header.readers - 1
        if left < 0:
            return None
        try:
            value = _mapped(self.file, self._header)
            self._header._replace(readers=left).write(self.file)
            if left == 0:
                self.path.unlink(missing_ok=True)
        except OSError:
            return None
        return value

    def keep(self, value: T, readers: int) -> T:
        """Keep it for others. Returns the same, mapped; itself if it cannot be kept."""
        parts: list[pickle.PickleBuffer] = []
        rest = pickle.dumps(value, protocol=5, buffer_callback=parts.append)
        views = [part.raw() for part in parts]
        content = pickle.dumps(([len(view) for view in views], rest))
        header = _Header.of_this_process(readers, len(content))
        _sweep(self.path.parent)
        try:
            with _new_file(self.path) as new:
                with open(new, "wb", closefd=False) as stream:
                    stream.write(_HEADER.pack(*header) + content)
                    for view in views:
                        stream.seek(_aligned(stream.tell()))
                        stream.write(view)
                mapped: T = _mapped(new, header)
                atexit.register(_take_away, self.path, os.fstat(new))
            return mapped
        except OSError:
            with suppress(OSError):
                self._header._replace(readers=NO_ROOM).write(self.file)
                atexit.register(_take_away, self.path, os.fstat(self.file))
            return value


@contextmanager
def _locked(launch: Launch) -> Iterator[_Place | None]:
    """Its place, for a `with` in which nobody else has it; None where that cannot be."""
    place, idle_s = None, 0.0
    with ExitStack() as held:
        with suppress(OSError):
            name = hashlib.sha256(launch.name.encode(errors="surrogateescape")).hexdigest()
            path = Path(tempfile.gettempdir()) / f"{PREFIX}{name[:32]}"
            while (file := _take(path, os.O_CREAT)) is None and idle_s < PATIENCE_S:
                time.sleep(POLL_S)
                idle_s += 0 if _is_at_work(path) else POLL_S
            if file is not None:
                held.callback(_release, file)
                place = _Place(path, file)
        try:
            yield place
        except BaseException:
            if place is not None:
                _take_away(place.path, os.fstat(place.file))
            raise


def _take(path: Path, flags: int = 0) -> int | None:
    """The file, opened and locked; None while another has it. Raises `OSError` where that cannot be."""
    if fcntl is None or start_of(os.getpid()) is None:
        raise OSError(errno.ENOTSUP, "nothing locks files here, or nothing tells which processes live")
    with ExitStack() as unless_taken:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
        unless_taken.callback(os.close, file)
        status = os.fstat(file)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink <= 1
        if not is_ours or status.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "others may have written what would be unpickled", str(path))
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.lstat(), status):  # or it is another's by now, or gone
                unless_taken.pop_all()
                return file
    return None


def _release(file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)  # a map of it would hold the lock
    os.close(file)


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    """A file for a `with` that fills it; it has the name afterwards, or is gone if the `with` fails."""
    file, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # or another launch might sweep it away
        yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        _release(file)


def _is_at_work(path: Path) -> bool:
    """Whether who has the file lives and is not stopped."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        header = _Header.read(file)
    finally:
        os.close(file)
    return header.is_of_living_process and not is_stopped(header.pid)


def _mapped(file: int, header: _Header) -> Any:
    whole = memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ))
    end = _HEADER.size + header.length
    lengths, rest = pickle.loads(whole[_HEADER.size : end])
    parts = []
    for length in lengths:
        start = _aligned(end)
        end = start + length
        parts.append(whole[start:end])
    return pickle.loads(rest, buffers=parts)


def _aligned(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _take_away(path: Path, status: os.stat_result) -> None:
    """The file of that status, if it still has the name."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), status):
            path.unlink()


def _sweep(folder: Path) -> None:
    """Take away what processes that were killed have left."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            file = _take(path)
            if file is not None:
                try:
                    if not _Header.read(file).is_of_living_process:
                        path.unlink()
                finally:
                    _release(file)
