"""How much memory is free to use, in bytes."""

import os
from pathlib import Path


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """What may be taken without anything being swapped out or killed, of the machine and of the cgroup."""
    return max(0, min(_of_machine(proc), _of_cgroup(cgroup)))


def _of_machine(proc: Path) -> int:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    try:  # macOS, which does not tell what is free
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 0


def _of_cgroup(cgroup: Path) -> int:
    """The container's limit less what it uses; the cache of files, which gives way, is not use."""
    for folder, limit, used, cached in (
        (cgroup, "memory.max", "memory.current", "inactive_file"),
        (cgroup / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        try:
            free = int((folder / limit).read_text()) - int((folder / used).read_text())
            statistics = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return free + int(statistics[cached])
        except (OSError, ValueError, KeyError):  # no such file, or "max": no limit
            continue
    return 1 << 62
