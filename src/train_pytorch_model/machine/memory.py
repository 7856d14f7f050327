"""The memory that this process may use, and what its allocator keeps of it."""

import ctypes
import os
import re
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# From glibc's malloc.h.
M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
LARGEST_KEPT = 32 << 20  # bytes of a block; glibc's maximum
UNLIMITED = 1 << 62  # bytes


@dataclass(frozen=True)
class _MemoryFiles:
    """Where a version of cgroups says what a container may use, and uses."""

    folder: str
    limit: str
    usage: str
    page_cache: str  # an entry of its statistics: what the kernel can take back

    def free_bytes(self, cgroup: Path) -> int:
        """Return the limit minus the usage. Raises `OSError`, `ValueError`, `KeyError`."""
        folder = cgroup / self.folder
        limit = int((folder / self.limit).read_text())
        usage = int((folder / self.usage).read_text())
        lines = (folder / "memory.stat").read_text().splitlines()
        statistics = dict(line.split() for line in lines)
        return limit - usage + int(statistics[self.page_cache])


CGROUP_VERSIONS = (
    _MemoryFiles(".", "memory.max", "memory.current", "inactive_file"),
    _MemoryFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return how many bytes machine and cgroup let one allocate, without swapping or a kill."""
    return max(0, min(_of_machine(proc), _of_cgroup(cgroup)))


def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next step.

    Returning it costs 7 % of a step on one core.
    """
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def release_freed_memory() -> None:
    """Have the C library return what it keeps, which takes 20 ms.

    Up to version 2.37, glibc cannot use PyTorch's blocks again.
    """
    if malloc_trim := _of_glibc("malloc_trim"):
        malloc_trim(0)


def _of_glibc(name: str) -> Any:
    """Return a function of the C library; None if it has no such one."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _of_machine(proc: Path) -> int:
    """Return how many bytes the machine has available."""
    with suppress(OSError, ValueError):
        text = (proc / "meminfo").read_text()
        (available,) = re.findall(r"^MemAvailable: +(\d+) kB$", text, re.MULTILINE)
        return int(available) << 10
    try:  # macOS, which does not report what is available
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 0


def _of_cgroup(cgroup: Path) -> int:
    """Return how many bytes the container's limit leaves; `UNLIMITED` without a limit."""
    for version in CGROUP_VERSIONS:
        with suppress(OSError, ValueError, KeyError):  # no such file, or "max": no limit
            return version.free_bytes(cgroup)
    return UNLIMITED
