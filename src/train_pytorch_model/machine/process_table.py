"""Other processes of this host: whether they live, how to start one, and not to outlive a parent."""

import ctypes
import os
import signal
import sys
from pathlib import Path

PROCESSES = Path("/proc")
PR_SET_PDEATHSIG = 1  # of Linux's prctl


def start_of(pid: int) -> str | None:
    """When a process began, in ticks; None if there is none, or nothing is known. Numbers are used again."""
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else stat[19]  # dead, but nobody has asked for its status


def is_stopped(pid: int) -> bool:
    """Whether a process lives and does nothing, as after SIGSTOP."""
    stat = _stat(pid)
    return stat is not None and stat[0] in "Tt"


def end_with_parent(parent: int | None = None) -> None:
    """Have the system kill this process when its parent ends, or end it now if that is not `parent` any more.

    Linux only. A launcher that is killed could not end its workers, which would wait for each other.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def python_command(program: str) -> tuple[str, ...]:
    """The command of a Python that runs a program text, and imports from where this process does.

    That need not be what its own start would give it.
    """
    return sys.executable, "-W", "ignore", "-c", f"import sys; sys.path[:] = {sys.path!r}\n{program}"


def _stat(pid: int) -> list[str] | None:
    """What the system tells of a process, from its state on."""
    try:
        with (PROCESSES / str(pid) / "stat").open() as file:
            return file.read().rpartition(")")[2].split() or None
    except OSError:
        return None
