"""How many threads PyTorch computes with on a CPU: one for each core that other processes leave.

Its threads wait for each other within every operation, so one that shares its core holds up all. Beside one
busy process on two cores, two threads of a ResNet-18 reach 0.4 to 0.7 of the rate of one thread; beside one
that is busy half of the time, the same rate: `tests.benchmarks.busy_machine`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from train_pytorch_model.machine.cores import CoreTimes

FIXED_BY = "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why."""

    count: int
    reason: str
    is_fixed: bool = False
    """Whether it stays, whatever other processes do."""


ONE_THREAD = Threads(1, "", is_fixed=True)


def choose_threads(cores: int, since: CoreTimes | None, now: CoreTimes | None) -> Threads:
    """One thread for each of `cores` that other processes have not used between two times; at least one.

    What other processes use is rounded to whole cores: less than half a core changes nothing. It changes
    nothing either if it is not known. The number of threads decides about the last bits of a result.
    """
    free = now.free_cores(since) if now and since else None
    count = cores if free is None else max(1, min(cores, math.floor(free + 0.5)))
    if free is None or count == cores:
        return Threads(count, "one for each core")
    return Threads(count, f"other processes use {max(0.0, cores - free):.1f} of {cores} cores")


def fixed_threads(env: Mapping[str, str]) -> Threads | None:
    """The number that the user has fixed, if any."""
    text = env.get(FIXED_BY, "")
    return (
        Threads(int(text), f"as {FIXED_BY} says", is_fixed=True) if text.isdecimal() and int(text) else None
    )
