"""Processors, memory and processes: those that this process may use, and what the operating system
knows.

On a CPU, PyTorch computes with one thread for each core that other processes leave. Its threads
wait for each other within every operation, so one that shares its core holds up all. Beside one
busy process on two cores, two threads of a ResNet-18 reach 0.4 to 0.7 of the rate of one thread;
beside one that is busy half of the time, the same rate: `tests.benchmarks.busy_machine`.
"""

import ctypes
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

MIN_MEASURED_S = (
    1.0  # in less, the kernel's ticks of 10 ms and the start of a process say too little
)
ITEMS_AT_ONCE = 100  # for one thread
FIXED_BY = "OMP_NUM_THREADS"
SWITCH_S = (
    0.0005  # the default is ten times that, and each operation of a forward pass may wait for it
)
T = TypeVar("T")
U = TypeVar("U")
OPENMP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}
"""Environment variables of PyTorch's own threads, read when it loads.

By default they spin while they wait for each other: with anything else on the cores, such as
decoding, two of them are then slower than one. Sleeping immediately makes them 3 to 4 times faster
there, but each operation has to wake them. Spinning for a few microseconds first costs nothing on
busy cores, and is up to 15 % faster on idle ones.
"""
PROCESSES = Path("/proc")
PR_SET_PDEATHSIG = 1  # from Linux's prctl.h
# From glibc's malloc.h.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 32 << 20  # bytes of a block; glibc's maximum


def usable_cores() -> int:
    """Return the number of processors in the affinity mask, limited by the cgroup's quota; at least
    1.
    """
    return max(1, math.ceil(min(len(_affinity()), _cgroup_quota())))


def in_threads(function: Callable[[T], U], items: Sequence[T]) -> Iterator[U]:
    """Yield the results for all items in order, computed by a thread for each core."""
    # One future for many items: each takes 1 kB.
    tasks = [items[start : start + ITEMS_AT_ONCE] for start in range(0, len(items), ITEMS_AT_ONCE)]
    with ThreadPoolExecutor(usable_cores()) as pool:
        for results in pool.map(lambda task: list(map(function, task)), tasks):
            yield from results


@dataclass(frozen=True)
class CoreTimes:
    """How much of the time of the processors of the affinity mask other processes have left."""

    at_s: float  # when, by `time.monotonic`
    total_s: float  # since the machine has started, summed over the processors
    free_s: float  # of it, what was idle, and what this process has computed

    @classmethod
    def now(cls, stat: Path = Path("/proc/stat")) -> Self | None:
        """Return the times until now; None where the system does not tell, as on macOS and Windows."""
        names = {f"cpu{number}" for number in _affinity()}
        try:
            rows = [line.split() for line in stat.read_text().splitlines()]
            # Idle and waiting are the fourth and fifth; what follows the eighth is in the first two
            # already.
            ticks = [[int(field) for field in row[1:9]] for row in rows if row[0] in names]
            total, idle = sum(map(sum, ticks)), sum(each[3] + each[4] for each in ticks)
        except (OSError, ValueError, IndexError):
            return None
        if (
            len(ticks) < len(names) or not total
        ):  # a container that numbers them otherwise, or shows zeros
            return None
        per_s = os.sysconf("SC_CLK_TCK")
        return cls(time.monotonic(), total / per_s, idle / per_s + sum(os.times()[:4]))

    def free_cores(self, since: Self) -> float | None:
        """Return how many cores were idle or this process's since then; None if that is not known."""
        elapsed_s = self.at_s - since.at_s
        # A kernel whose clock of processors stands still, as in some sandboxes, would look busy.
        if elapsed_s < MIN_MEASURED_S or self.total_s - since.total_s < elapsed_s / 2:
            return None
        return (self.free_s - since.free_s) / elapsed_s


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why."""

    count: int
    reason: str
    is_fixed: bool = False  # whether it stays, whatever other processes do


ONE_THREAD = Threads(1, "", is_fixed=True)


def choose_threads(cores: int, since: CoreTimes | None, now: CoreTimes | None) -> Threads:
    """One thread for each of `cores` that other processes have not used between two times; at least
    one.

    What other processes use is rounded to whole cores: less than half a core changes nothing. It
    changes nothing either if it is not known. The number of threads decides about the last bits of
    a result.
    """
    free = now.free_cores(since) if now and since else None
    count = cores if free is None else max(1, min(cores, math.floor(free + 0.5)))
    if free is None or count == cores:
        return Threads(count, "one for each core")
    return Threads(count, f"other processes use {max(0.0, cores - free):.1f} of {cores} cores")


def fixed_threads(env: Mapping[str, str]) -> Threads | None:
    """The number that the user has fixed, if any."""
    text = env.get(FIXED_BY, "")
    is_number = text.isdecimal() and int(text) > 0
    return Threads(int(text), f"as {FIXED_BY} says", is_fixed=True) if is_number else None


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """A `with` in which decoding soon gives way: by default, a step of a ResNet-18 takes twice its
    time.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _affinity() -> set[int]:
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # macOS and Windows have no affinity mask
        return set(range(os.cpu_count() or 1))


def _cgroup_quota(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> float:
    """The processors that the cgroup may use, of v2 with those around it, or v1; infinite without a
    limit.
    """
    group = root
    with suppress(OSError):
        group /= "".join(re.findall("^0::/(.*)$", membership.read_text(), re.MULTILINE))
    groups = [each for each in (group, *group.parents) if each.is_relative_to(root)]
    if known := [quota for each in groups if (quota := _quota_in(each / "cpu.max")) is not None]:
        return min(known)
    return _quota_in(root / "cpu/cpu.cfs_quota_us", root / "cpu/cpu.cfs_period_us") or math.inf


def _quota_in(*files: Path) -> float | None:
    """Return the quotient of quota and period, which one or two files give; None if they do not."""
    try:
        quota, period = " ".join(file.read_text() for file in files).split()
        return math.inf if quota in ("max", "-1") else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None


def available_memory(proc: Path = Path("/proc"), cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the bytes that can be allocated within machine and cgroup without swapping or being
    killed.
    """
    return max(0, min(_of_machine(proc), _of_cgroup(cgroup)))


def keep_freed_memory() -> None:
    """Have glibc keep freed memory for the next step: returning it costs 7 % of a step on one core."""
    if mallopt := _of_glibc("mallopt"):
        mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
        mallopt(M_TRIM_THRESHOLD, (1 << 31) - 1)


def release_freed_memory() -> None:
    """Have the C library return what it keeps, in 20 ms: up to 2.37, glibc cannot reuse PyTorch's
    blocks.
    """
    if malloc_trim := _of_glibc("malloc_trim"):
        malloc_trim(0)


def _of_glibc(name: str) -> Any:
    """A function of the C library; None if it has no such one."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _of_machine(proc: Path) -> int:
    with suppress(OSError, ValueError):
        (available,) = re.findall(
            r"^MemAvailable: +(\d+) kB$", (proc / "meminfo").read_text(), re.MULTILINE
        )
        return int(available) << 10
    try:  # macOS, which does not report what is available
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):
        return 0


def _of_cgroup(cgroup: Path) -> int:
    """Return the container's limit minus its usage, which excludes reclaimable page cache."""
    for folder, limit, used, cached in (
        (cgroup, "memory.max", "memory.current", "inactive_file"),
        (
            cgroup / "memory",
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ):
        try:
            free = int((folder / limit).read_text()) - int((folder / used).read_text())
            statistics = dict(
                line.split() for line in (folder / "memory.stat").read_text().splitlines()
            )
            return free + int(statistics[cached])
        except (OSError, ValueError, KeyError):  # no such file, or "max": no limit
            continue
    return 1 << 62


def start_of(pid: int) -> str | None:
    """Return when a process has started, in clock ticks, as ids are reused; None if it is dead or
    unknown.
    """
    stat = _stat(pid)
    return None if stat is None or stat[0] in "ZX" else stat[19]  # dead, but not yet reaped


def is_stopped(pid: int) -> bool:
    """Return whether a process is alive but stopped, as after SIGSTOP."""
    stat = _stat(pid)
    return stat is not None and stat[0] in "Tt"


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
