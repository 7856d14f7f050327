"""The processors that this process may use, and how busy others keep them."""

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

# In less, the kernel's ticks of 10 ms and the start of a process say too little.
MIN_MEASURED_S = 1.0
ITEMS_AT_ONCE = 100  # for one thread
T = TypeVar("T")
U = TypeVar("U")
PROCESSES = Path("/proc")
# Fields of a processor's line in /proc/stat, after its name.
IDLE = 3
WAITING = 4


def usable_cores() -> int:
    """Return how many processors the affinity mask and the cgroup's quota allow; at least 1."""
    return max(1, math.ceil(min(len(_affinity()), _cgroup_quota())))


def in_threads(
    function: Callable[[T], U], items: Sequence[T], at_once: int = ITEMS_AT_ONCE
) -> Iterator[U]:
    """Yield the results for all items in order, computed by a thread for each core.

    A thread takes so many `at_once`.
    """

    def compute(task: Sequence[T]) -> list[U]:
        return [function(item) for item in task]

    # One future for many items: each takes 1 kB.
    tasks = [items[start : start + at_once] for start in range(0, len(items), at_once)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        for results in pool.map(compute, tasks):
            yield from results


@dataclass(frozen=True)
class CoreTimes:
    """How much of the time of the processors of the affinity mask other processes have left."""

    at_s: float  # when, by `time.monotonic`
    total_s: float  # since the machine has started, summed over the processors
    free_s: float  # of it, what was idle, and what this process has computed

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self | None:
        """Return the times until now; None if the system does not tell, as on macOS and Windows."""
        names = {f"cpu{number}" for number in _affinity()}
        try:
            rows = [line.split() for line in stat.read_text().splitlines()]
            # The first two of these eight fields contain what follows them.
            ticks = [[int(field) for field in row[1:9]] for row in rows if row[0] in names]
            total = sum(map(sum, ticks))
            idle = sum(fields[IDLE] + fields[WAITING] for fields in ticks)
        except (OSError, ValueError, IndexError):
            return None
        # A container may number the processors otherwise, or show zeros.
        if len(ticks) < len(names) or total == 0:
            return None
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        own_s = sum(os.times()[:4])
        return cls(time.monotonic(), total / ticks_per_s, idle / ticks_per_s + own_s)

    def free_cores(self, since: Self) -> float | None:
        """Return how many cores were idle or this process's since then; None if not known."""
        elapsed_s = self.at_s - since.at_s
        # A kernel whose clock of processors stands still, as in some sandboxes, would look busy.
        if elapsed_s < MIN_MEASURED_S or self.total_s - since.total_s < elapsed_s / 2:
            return None
        return (self.free_s - since.free_s) / elapsed_s


def _affinity() -> set[int]:
    """Return the numbers of the processors on which this process may run."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS and Windows have no affinity mask
        return set(range(os.cpu_count() or 1))


def _cgroup_quota(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float:
    """Return how many processors the cgroup may use; infinity without a limit.

    Of version 2, the groups around it limit it, too.
    """
    group = root
    with suppress(OSError):
        group /= "".join(re.findall("^0::/(.*)$", membership.read_text(), re.MULTILINE))
    groups = [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]
    quotas = [_quota_in(folder / "cpu.max") for folder in groups]
    known = [quota for quota in quotas if quota is not None]
    if known:
        return min(known)
    of_version_1 = _quota_in(root / "cpu/cpu.cfs_quota_us", root / "cpu/cpu.cfs_period_us")
    return of_version_1 or math.inf


def _quota_in(*files: Path) -> float | None:
    """Return quota by period, which one or two files give; None if they do not."""
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
