"""Whether other processes live, and what happens to this one when its parent ends."""

import ctypes
import os
import re
import signal
import sys
from contextlib import suppress
from socket import gethostname

from train_pytorch_model.machine.cores import PROCESSES
from train_pytorch_model.machine.identity import clock_namespace, kernel_id, process_namespace

PR_SET_PDEATHSIG = 1  # from Linux's prctl.h
# Fields of a process's `stat` file, counted from its state; see proc(5).
STATE = 0
START_TIME = 19
DEAD = "ZX"  # zombies are dead, but not yet reaped
STOPPED = "Tt"
# A process as `describe_this_process` writes it: its number, and when it has started.
DESCRIBED = re.compile(r"process (\d{1,10}) on .*\nstarted (\d+) .*\n", re.ASCII)


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


def describe_this_process() -> str:
    """Return a text from which `is_gone` can tell later whether this process has ended.

    Its first line is for people.
    """
    stat = _stat(os.getpid())
    return _describe(os.getpid(), stat[START_TIME] if stat else "")


def is_gone(described: str) -> bool:
    """Return whether the process that described itself has surely ended.

    It is False when in doubt: a process of another host, container or start of the system is not
    seen from here, nor is any where the system has no `/proc`.
    """
    match = DESCRIBED.match(described)
    if match is None:
        return False
    pid, started = int(match[1]), match[2]
    if match[0] != _describe(pid, started):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass  # another user's, which may be hidden
    stat = _stat(pid)
    return stat is not None and (stat[STATE] in DEAD or stat[START_TIME] != started)


def _describe(pid: int, started: str) -> str:
    who = f"process {pid} on {gethostname()}\n"
    seen_from = _view_of_processes()
    return f"{who}started {started} {seen_from}\n" if started and seen_from else who


def _view_of_processes() -> str:
    """Return what a process number depends on: the start of the system, and the namespaces.

    It is empty if that cannot be told.
    """
    with suppress(OSError):
        if str((PROCESSES / "self").readlink()) == str(os.getpid()):  # not a host's, in a container
            views = (kernel_id(), process_namespace(), clock_namespace())
            return " ".join(views) if kernel_id() and process_namespace() else ""
    return ""


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process's `stat` file, from its state on."""
    with suppress(OSError):
        return (PROCESSES / str(pid) / "stat").read_text().rpartition(")")[2].split() or None
    return None
