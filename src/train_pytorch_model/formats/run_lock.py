"""One run at a time in a run folder: a lock file that names its holder and shows that it is alive.

    lock     {"host": …, "pid": …, "started": …, "token": …, "beat": …}

A holder on this host is gone as soon as its process is; one on another host, when its beat has not changed
for `SILENCE_S`. Neither clocks nor file times are compared, nor are file locks relied on: mounts of storage
accounts do not implement them faithfully. Where file locks work, no two processes check and write at once.
"""

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.machine.process_table import PROCESSES, start_of
from train_pytorch_model.words.errors import OutputDirectoryError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
BEAT_S = 10.0
SILENCE_S = 30.0
POLL_S = 0.5


@contextmanager
def run_lock(folder: Path, flag: str, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Hold the lock of an existing folder, for a `with`.

    Waits up to `SILENCE_S` to find out whether a holder on another host is alive, and says so. Raises
    `OutputDirectoryError` if another run holds the lock, or it cannot be written.
    """
    path = folder / LOCK
    try:
        own = _take(path, flag, say)
    except OSError as error:
        raise OutputDirectoryError(f"{flag}: {path} cannot be written: {error.strerror}.") from error
    over = threading.Event()
    beating = threading.Thread(target=_beat, args=(path, own, over), daemon=True, name="lock")
    beating.start()
    try:
        yield
    finally:
        over.set()
        beating.join()
        with suppress(OSError), _undisturbed(path.parent):
            if _is_held_by(path, own):
                path.unlink(missing_ok=True)


def _take(path: Path, flag: str, say: Callable[[str], None]) -> dict[str, Any]:
    """Write the lock if no live process holds it; returns its content."""
    own: dict[str, Any] = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": start_of(os.getpid()),
        "token": secrets.token_hex(8),
        "beat": 0,
    }
    while not _create(path, own):
        holder = _read(path)
        if holder is None:  # just created, or by a process that was killed while writing
            time.sleep(POLL_S)
            holder = _read(path)
        if holder is not None and _is_alive(path, holder, say):
            raise OutputDirectoryError(
                f"{flag}: another run is writing here: process {holder.get('pid')} on"
                f" {holder.get('host')!r} ({path}). Wait for it, end it, or name another output."
            )
        with _undisturbed(path.parent):
            if _read(path) == holder:
                path.unlink(missing_ok=True)
        # Without file locks, another process that has come to the same conclusion may be about to delete what
        # is written now.
        if _create(path, own):
            time.sleep(POLL_S)
            if _is_held_by(path, own):
                break
    return own


def _create(path: Path, own: dict[str, Any]) -> bool:
    try:
        with _undisturbed(path.parent), path.open("x") as file:
            file.write(json.dumps(own))
    except FileExistsError:
        return False
    return True


def _beat(path: Path, own: dict[str, Any], over: threading.Event) -> None:
    while not over.wait(BEAT_S):
        own["beat"] += 1
        with suppress(OSError), _undisturbed(path.parent):  # the storage may come back
            if _is_held_by(path, own):
                path.write_text(json.dumps(own))


@contextmanager
def _undisturbed(folder: Path) -> Iterator[None]:
    """A `with` for a short access, exclusive where the file system supports locks."""
    with ExitStack() as opened:
        if fcntl is not None:
            with suppress(OSError):
                handle = os.open(folder, os.O_RDONLY)
                opened.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _is_alive(path: Path, holder: dict[str, Any], say: Callable[[str], None]) -> bool:
    if holder.get("host") == socket.gethostname() and PROCESSES.exists():
        pid = holder.get("pid")
        return isinstance(pid, int) and start_of(pid) == holder.get("started") is not None
    say(f"A run on {holder.get('host')!r} has left its lock here; checking whether it is alive …")
    deadline = time.monotonic() + SILENCE_S
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        if (_read(path) or holder) != holder:  # alive, or held by yet another run
            return True
    return False


def _read(path: Path) -> dict[str, Any] | None:
    """The content of the lock; None if it is invalid, as after a writer was killed."""
    try:
        return read_json(path, dict[str, Any])
    except MalformedFileError:
        return None


def _is_held_by(path: Path, own: dict[str, Any]) -> bool:
    return bool((_read(path) or {}).get("token") == own["token"])
