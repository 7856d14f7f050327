"""Faults of files: disks that are full, slow or lost, and files that go, lock or lie at chosen
moments.

Each function is called in the trial's process before the program starts.
"""

import ctypes
import errno
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from train_pytorch_model.data import decoders
from train_pytorch_model.machine.launch import rank_of

_NAMES: dict[tuple[int, int], list[str]] = {}
"""The names in a module or class of what `replace_in` has replaced there."""

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2  # Linux: bypass file and folder permissions


def nothing_waits_for_the_disk() -> None:
    """Skip fsync: what a process has written outlives it either way; only a power loss would
    differ.
    """
    replace_in(os, os.fsync, lambda _: None)


def kill_at_file_event(event: str, below: str, number: int = 1, if_there: str = "") -> None:
    """Send SIGKILL just before the `number`-th audit event of this name on a file below a path.

    With `if_there`, only events that happen while that file exists are counted.
    """
    count = 0

    def hook(name: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if name == event and str(arguments[0]).startswith(below):
            count += not if_there or Path(if_there).exists()
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def remove_file_at_open(number: int, below: str, path: str) -> None:
    """Delete a listed image just before the `number`-th time that a file below a folder is opened.

    Each process counts its own opens: the first process of a node to arrive reads the headers for
    all.
    """
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if event == "open" and _path_text(arguments[0]).startswith(below):
            count += 1
            if count == number:
                Path(path).unlink(missing_ok=True)

    sys.addaudithook(hook)


def every_rank_has_its_own_host() -> None:
    """Have each process open the inputs for itself."""
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1")
    host = f"host-{rank_of(os.environ)}"
    socket.gethostname = lambda: host


def missing_for_rank(rank: int, path: str) -> None:
    """Hide a folder from one process, as if its host had not mounted it."""
    every_rank_has_its_own_host()
    if rank_of(os.environ) == rank:
        exists = os.path.exists
        replace_in(os.path, exists, lambda given: str(given) != path and exists(given))


def unreadable_for_rank(rank: int, path: str) -> None:
    """Make a file unreadable for one process, as if it had its own host, whose mount fails."""
    every_rank_has_its_own_host()
    if rank_of(os.environ) != rank:
        return
    decoders.HAS_PROCESSES = False  # this process decodes

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and _path_text(arguments[0]) == path:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    sys.addaudithook(hook)


def permissions_count() -> None:
    """Drop root's capabilities to bypass file permissions, so that modes apply to it as to other
    users.
    """
    version, process = 0x20080522, 0  # _LINUX_CAPABILITY_VERSION_3; 0 is the calling process
    header = (ctypes.c_uint32 * 2)(version, process)
    # Effective, permitted and inheritable: capabilities 0 to 31, then 32 to 63.
    sets = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    sets[0] &= ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    assert libc.capset(header, sets) == 0


def limit_file_size(limit: int) -> None:
    """Limit the size of every file, in bytes."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def full_disk(below: str, after: int = 0) -> None:
    """Fail with ENOSPC when a file below a folder is opened for writing, after the first `after` of
    them.
    """
    count = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal count
        if (
            event == "open"
            and str(arguments[0]).startswith(below)
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ):
            count += 1
            if count > after:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), arguments[0])

    sys.addaudithook(hook)


def mount(below: str, too_early: int) -> None:
    """Make a folder behave like mounted storage: no renames, links or permissions, and new files
    appear late.

    The first `too_early` reads of each file written there return nothing.
    """
    for function in (os.rename, os.replace, os.link, os.symlink, os.chmod):
        replace_in(os, function, _refusing(function, below))
    left: dict[str, int] = {}
    real_open = Path.open

    def mounted_open(path: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        key = str(path)
        if key.startswith(below) and "w" in mode:
            left[key] = too_early
        elif left.get(key, 0) > 0:
            left[key] -= 1
            return real_open(Path(os.devnull), mode, *arguments, **options)
        return real_open(path, mode, *arguments, **options)

    replace_in(Path, real_open, mounted_open)


def _refusing(function: Callable[..., Any], below: str) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        if any(str(argument).startswith(below) for argument in arguments):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(arguments[0]))
        return function(*arguments, **options)

    return call


def _path_text(argument: Any) -> str:
    """The path in an argument of `open`, or an empty string; file names may be any bytes."""
    return os.fsdecode(argument) if isinstance(argument, (str, bytes, os.PathLike)) else ""


def replace_in(namespace: ModuleType | type, replaced: object, by: object) -> None:
    """Replace an object where a module or class refers to it, by whatever name; also once more."""
    now = [name for name, value in vars(namespace).items() if value is replaced]
    names = _NAMES.setdefault((id(namespace), id(replaced)), now)
    assert names, (namespace, replaced)
    for name in names:
        setattr(namespace, name, by)
