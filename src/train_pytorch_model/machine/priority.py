"""The thread that trains comes first: before those that decode, write, and talk to MLflow."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SWITCH_S = 0.0005  # ten times that by default, and each operation of a forward pass may have to wait for it
NICENESS = 10  # of 19: a tenth of the turns of a thread that computes, and all of those that it leaves

OPENMP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}
"""Environment of PyTorch's own threads, read when it loads.

By default they spin while they wait for each other: with anything else on the cores, such as decoding, two of
them are then slower than one. Asleep at once they keep 3 to 4 times that, but are woken for each operation.
After a few microseconds of spinning they lose nothing on a busy core, and are up to 15 % faster on idle ones.
"""


@contextmanager
def quick_turns() -> Iterator[None]:
    """A `with` in which a thread that computes in Python gives way soon to one that wants to.

    Beside one, a step of a ResNet-18 takes twice its time by default, and 6 % more here.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def step_back() -> None:
    """Give this thread what others leave of the processors, for good. On Linux: elsewhere it has no rank."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
