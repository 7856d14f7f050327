"""How many processors this process may use, and how many of them other processes leave to it."""

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

MIN_MEASURED_S = 1.0  # in less, the kernel's ticks of 10 ms and the start of a process say too little


def usable_cores() -> int:
    """Return the number of processors in the affinity mask, limited by the cgroup's quota; at least 1."""
    return max(1, math.ceil(min(len(_affinity()), _cgroup_quota())))


@dataclass(frozen=True)
class CoreTimes:
    """How long the processors of the affinity mask have been idle, and this process has computed."""

    at_s: float
    """When, by `time.monotonic`."""
    total_s: float
    """Since the machine has started, summed over the processors."""
    idle_s: float
    own_s: float

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self | None:
        """Return the times until now; None where the system does not tell, as on macOS and Windows."""
        wanted, total, idle = {f"cpu{number}" for number in _affinity()}, 0, 0
        try:
            for line in stat.read_text().splitlines():
                name, *fields = line.split()
                if name in wanted:
                    ticks = [int(field) for field in fields[:8]]  # guests' time is in the user's
                    wanted.remove(name)
                    total, idle = total + sum(ticks), idle + ticks[3] + ticks[4]
        except (OSError, ValueError, IndexError):
            return None
        if wanted or not total:  # a container that numbers its processors otherwise, or shows zeros
            return None
        per_s = os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), total / per_s, idle / per_s, sum(os.times()[:4]))

    def free_cores(self, since: Self) -> float | None:
        """Return how many cores were idle or this process's since then; None if that is not known."""
        elapsed_s = self.at_s - since.at_s
        # A kernel whose clock of processors stands still, as in some sandboxes, would look busy.
        if elapsed_s < MIN_MEASURED_S or self.total_s - since.total_s < elapsed_s / 2:
            return None
        return (self.idle_s - since.idle_s + self.own_s - since.own_s) / elapsed_s


def _affinity() -> set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS and Windows have no affinity mask
        return set(range(os.cpu_count() or 1))


def _cgroup_quota(root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")) -> float:
    """Return how many processors the container may use; infinite without a limit (cgroup v2, then v1)."""
    quotas = [_quota_of(group) for group in _own_groups(root, membership)]
    if known := [quota for quota in quotas if quota is not None]:
        return min(known)
    try:
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((root / "cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):
        return math.inf


def _own_groups(root: Path, membership: Path) -> Iterator[Path]:
    """Yield this process's group of cgroup v2 and those around it, each of which may have a limit.

    In a container its own is the root; a service or a job of a scheduler sees all of them.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        lines = []
    path = next((line[4:] for line in lines if line.startswith("0::/")), "")
    group = root / path
    yield from (each for each in (group, *group.parents) if each.is_relative_to(root))


def _quota_of(group: Path) -> float | None:
    try:
        quota, period = (group / "cpu.max").read_text().split()
        return math.inf if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
