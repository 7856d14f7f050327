"""How many threads compute on a CPU, and how they wait for each other.

On a CPU, PyTorch computes with one thread for each core that other processes leave. Its threads
wait for each other within every operation, so one that shares its core holds up all. Beside one
busy process on two cores, two threads of a ResNet-18 reach 0.4 to 0.7 of the rate of one thread;
beside one that is busy half of the time, the same rate: `tests.benchmarks.busy_machine`.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from train_pytorch_model.machine.cores import CoreTimes

FIXED_BY = "OMP_NUM_THREADS"
# The default is ten times that, and each operation of a forward pass may wait for it.
SWITCH_S = 0.0005
OPENMP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}
"""Environment variables of PyTorch's own threads, read when it loads.

By default they spin while they wait for each other: with anything else on the cores, such as
decoding, two of them are then slower than one. Sleeping immediately makes them 3 to 4 times faster
there, but each operation has to wake them. Spinning for a few microseconds first costs nothing on
busy cores, and is up to 15 % faster on idle ones.
"""


@dataclass(frozen=True)
class Threads:
    """A number of threads, and why."""

    count: int
    reason: str
    is_fixed: bool = False  # whether it stays, whatever other processes do


ONE_THREAD = Threads(1, "", is_fixed=True)


def choose_threads(cores: int, since: CoreTimes | None, now: CoreTimes | None) -> Threads:
    """Return a thread for each of `cores` that others have not used between two times.

    At least one. What other processes use is rounded to whole cores: less than half a core changes
    nothing. It changes nothing either if it is not known. The number of threads decides about the
    last bits of a result.
    """
    free = now.free_cores(since) if now and since else None
    count = cores if free is None else max(1, min(cores, math.floor(free + 0.5)))
    if free is None or count == cores:
        return Threads(count, "one for each core")
    return Threads(count, f"other processes use {max(0.0, cores - free):.1f} of {cores} cores")


def fixed_threads(env: Mapping[str, str]) -> Threads | None:
    """Return the number that the user has fixed; None if there is none."""
    text = env.get(FIXED_BY, "")
    is_number = text.isdecimal() and int(text) > 0
    return Threads(int(text), f"as {FIXED_BY} says", is_fixed=True) if is_number else None


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """Have decoding soon give way to other threads, in a `with`.

    By default, a step of a ResNet-18 takes twice its time beside it.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
