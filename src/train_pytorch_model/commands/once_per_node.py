"""Share a value between the processes of a node: one of them makes it, the others map it into memory.

The value is in a file of the temporary folder, whose large parts are mapped and not copied: a node holds a
single copy of a million file names. The file is created empty first, to be locked. A file that others may
have mapped is never overwritten, but replaced by a new one of the same name. It is deleted once the last
process has read it. If it is unusable, a process makes its own value; so do all on systems without `/proc`.

    int64           processes that have yet to read it; 0 while it is being made, -1 if it cannot be written
    int64, int64    the process that makes it: its id, and its start time, as ids are reused
    int64           bytes of the pickle
    pickle          (bytes of each large part, pickle of everything else)
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

from train_pytorch_model.machine.process_table import is_stopped, start_of
from train_pytorch_model.words.errors import UserError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

PREFIX = "train_pytorch_model-inputs-"
POLL_S = 0.05
PATIENCE_S = 60.0  # total wait for a process that makes no progress, as after SIGSTOP
ALIGNMENT = 64
NO_ROOM = -1

_HEADER = struct.Struct("<qqqq")


@dataclass(frozen=True)
class Launch:
    """The processes of one command on one node."""

    name: str
    """Any length; the same for all processes of the launch, and for no others."""
    num_processes: int


def once_per_node(launch: Launch, make: Callable[[], T]) -> T:
    """The result of `make`, or the `UserError` that it raises; one process of the launch calls it, for all.

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
    """Offer a value to the processes of the launch for a `with`; this process is not one of them."""
    with ExitStack() as at_the_end:
        with _locked(launch) as place:
            if place is not None:
                place.keep(value, readers=launch.num_processes)
                at_the_end.callback(place.path.unlink, missing_ok=True)
        yield


def _made(make: Callable[[], T]) -> T | UserError:
    try:
        return make()
    except UserError as error:  # the same for all processes
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
        """The header of a file; all zeros if it has none yet. Raises `OSError`."""
        header = os.pread(file, _HEADER.size, 0)
        return cls(*_HEADER.unpack(header)) if len(header) == _HEADER.size else cls()

    def write(self, file: int) -> None:
        os.pwrite(file, _HEADER.pack(*self), 0)

    @property
    def is_of_living_process(self) -> bool:
        return start_of(self.pid) == str(self.started)


class _Place:
    """The file of a launch, locked by this process."""

    def __init__(self, path: Path, file: int) -> None:
        self.path, self.file = path, file
        self._header = _Header.read(file)
        if not self._header.is_of_living_process:
            self._header = _Header.of_this_process(readers=0)
            self._header.write(file)  # tells waiting processes who is working

    @property
    def has_room(self) -> bool:
        return self._header.readers != NO_ROOM

    def read(self) -> Any:
        """The value that a living process has made, counting one reader off; None if there is none."""
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
        """Write the value for other processes. Returns it mapped, or as given if it cannot be written."""
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
    """The launch's place, locked for a `with`; None if it cannot be locked."""
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
    """The file, opened and locked; None while another process holds it. Raises `OSError` if unusable."""
    if fcntl is None or start_of(os.getpid()) is None:
        raise OSError(errno.ENOTSUP, "this system has no file locks or no /proc")
    with ExitStack() as unless_taken:
        file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
        unless_taken.callback(os.close, file)
        status = os.fstat(file)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and status.st_nlink <= 1
        if not is_ours or status.st_mode & 0o077:
            raise PermissionError(errno.EPERM, "another user may have written the pickle", str(path))
        with suppress(BlockingIOError, FileNotFoundError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(path.lstat(), status):  # else it was replaced or deleted meanwhile
                unless_taken.pop_all()
                return file
    return None


def _release(file: int) -> None:
    fcntl.flock(file, fcntl.LOCK_UN)  # closing is not enough: a map of the file keeps the lock
    os.close(file)


@contextmanager
def _new_file(path: Path) -> Iterator[int]:
    """A temporary file for a `with` to fill; then renamed to `path`, or deleted if the `with` fails."""
    file, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.parent)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # otherwise another launch might sweep it away
        yield file
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    finally:
        _release(file)


def _is_at_work(path: Path) -> bool:
    """Whether the process that works on the file is alive and not stopped."""
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
    """Delete the file of that status, if the path still names it."""
    with suppress(OSError):
        if os.path.samestat(path.lstat(), status):
            path.unlink()


def _sweep(folder: Path) -> None:
    """Delete the files that killed processes have left."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(OSError):
            file = _take(path)
            if file is not None:
                try:
                    if not _Header.read(file).is_of_living_process:
                        path.unlink()
                finally:
                    _release(file)
