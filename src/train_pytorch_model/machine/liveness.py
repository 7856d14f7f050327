"""Whether other processes live, and what happens to this one when its parent ends."""

import ctypes
import os
import signal
import sys
from contextlib import suppress

from train_pytorch_model.machine.cores import PROCESSES

PR_SET_PDEATHSIG = 1  # from Linux's prctl.h
# Fields of a process's `stat` file, counted from its state; see proc(5).
STATE = 0
START_TIME = 19
DEAD = "ZX"  # zombies are dead, but not yet reaped
STOPPED = "Tt"


def start_of(pid: int) -> str | None:
    """Return when a process has started, in clock ticks; None if it is dead or unknown.

    With the id, it identifies a process: ids are used again.
    """
    stat = _stat(pid)
    if stat is None or stat[STATE] in DEAD:
        return None
    return stat[START_TIME]


def is_stopped(pid: int) -> bool:
    """Return whether a process is alive but stopped, as after SIGSTOP."""
    stat = _stat(pid)
    return stat is not None and stat[STATE] in STOPPED


def end_with_parent(parent: int | None = None) -> None:
    """Have Linux kill this process when its parent ends; exit now if that is no longer `parent`."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(128 + signal.SIGKILL)


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process's `stat` file, from its state on."""
    with suppress(OSError):
        return (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split() or None
    return None
