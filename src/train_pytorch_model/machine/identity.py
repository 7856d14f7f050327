"""What tells this machine, or container, from others: whose cores, memory and processes are whose.

A host name is not enough: several machines may have one name, and one kernel many containers.
"""

import socket
from contextlib import suppress
from pathlib import Path

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACES = Path("/proc/self/ns")


def kernel_id() -> str:
    """Return what the processes of one running kernel have in common; empty if it does not say."""
    with suppress(OSError):
        return BOOT_ID.read_text().strip()
    return ""


def machine_id() -> str:
    """Return what the processes of one machine, or one container, have in common.

    A container with a name or with limits of its own is a machine.
    """
    return " ".join((socket.gethostname(), kernel_id(), _namespace("cgroup")))


def process_namespace() -> str:
    """Return what the processes of a machine have in common that see each other by their ids."""
    return _namespace("pid")


def clock_namespace() -> str:
    """Return what the processes of a machine have in common that read the same clocks."""
    return _namespace("time")


def _namespace(kind: str) -> str:
    """Return this process's namespace of that kind; empty if the system does not say."""
    with suppress(OSError):
        return str((NAMESPACES / kind).readlink())
    return ""
