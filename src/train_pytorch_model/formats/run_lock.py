"""One run at a time in a run folder: a lease that its holder renews for as long as it lives.

    lock     filelock's marker: process, host and start time of the holder, and a token

A holder on this host is gone as soon as its process is; one on another host, when it has not
renewed the lease for `SILENCE_S`. No clocks are compared, nor are file locks relied on: mounts of
storage accounts do not implement them faithfully.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import LeaseSettingsMismatch, SoftFileLease, Timeout

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.run_folder import LOCK, OUTPUT_PARAMETER, unwritable_error
from train_pytorch_model.machine.liveness import start_of

SILENCE_S = 30.0  # it is renewed three times as often
POLL_S = 0.5
TRY_S = 0.1  # two attempts: another contender may be replacing the lease of a dead process
NAMESPACE_MARK = "?pidns-"  # filelock writes a container's process namespace after it


@contextmanager
def run_lock(folder: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Make a run's folder and hold its lock, for a `with`.

    A folder that is empty at the end is removed. Waits up to `SILENCE_S` for a sign of life of a
    holder on another host, and says so. Raises `OutputDirectoryError` if another run holds the
    lock, or the folder cannot be written.
    """
    path = folder / LOCK
    lease = SoftFileLease(path, lease_duration=SILENCE_S)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable_error(folder, error) from error
    try:
        _acquire(lease, say)
    except (Timeout, LeaseSettingsMismatch) as error:
        process, host = _holder(lease)
        raise OutputDirectoryError(
            f"{parameter(OUTPUT_PARAMETER)}: another run is writing here: process {process} on"
            f" {host!r} ({path}). Wait for it, end it, or name another output."
        ) from error
    except OSError as error:
        with suppress(OSError):
            folder.rmdir()
        problem = f"{parameter(OUTPUT_PARAMETER)}: {path} cannot be written: {error.strerror}."
        raise OutputDirectoryError(problem) from error
    try:
        yield
    finally:
        with suppress(OSError):
            lease.release()
        with suppress(OSError):
            folder.rmdir()


def is_locked(folder: Path) -> bool:
    """Return whether a run may be writing in a folder; one on another host is taken to live."""
    lease = SoftFileLease(folder / LOCK, lease_duration=SILENCE_S)
    is_elsewhere = lease.owner is not None and _holder(lease)[1] != socket.gethostname()
    return is_elsewhere or _is_of_living_process(lease)


def _acquire(lease: SoftFileLease, say: Callable[[str], None]) -> None:
    """Acquire the lease if no live process holds it. Raises `Timeout` if one does."""
    with suppress(Timeout):
        lease.acquire(timeout=TRY_S)  # takes that of a process of this host that is gone
        return
    if _is_of_living_process(lease):
        raise Timeout(lease.lock_file)
    renewed_at = _renewed_at(lease)
    say(f"A run on {_holder(lease)[1]!r} has left its lock here; checking whether it is alive …")
    deadline = time.monotonic() + SILENCE_S + POLL_S
    while time.monotonic() < deadline:
        with suppress(Timeout):
            lease.acquire(timeout=POLL_S)
            return
        if _renewed_at(lease) not in (renewed_at, None):
            raise Timeout(lease.lock_file)
    # filelock does not take over a lease on file systems that cannot exchange two names, such as
    # NFS, nor an empty marker, as a host that crashed may leave.
    lease.force_break()
    lease.acquire(timeout=TRY_S)


def _is_of_living_process(lease: SoftFileLease) -> bool:
    """Return whether a process of this host, which is not a zombie, holds the lease.

    It is False if that cannot be told.
    """
    owner = lease.owner
    if owner is None or owner.start is None or _holder(lease)[1] != socket.gethostname():
        return False
    # filelock itself does not see zombies. It puts the boot id above the start in clock ticks.
    started_at = owner.start % 2**64
    return start_of(owner.pid) == str(started_at)


def _holder(lease: SoftFileLease) -> tuple[int | str, str]:
    """Return the process id and the host of the holder, for messages."""
    owner = lease.owner
    if owner is None:
        return "unknown", "unknown"
    host, _, _ = owner.hostname.partition(NAMESPACE_MARK)
    return owner.pid, host


def _renewed_at(lease: SoftFileLease) -> int | None:
    """Return when the lease was last renewed, by the clock of its storage; None if it is free.

    In nanoseconds.
    """
    with suppress(FileNotFoundError):
        return Path(lease.lock_file).lstat().st_mtime_ns
    return None
