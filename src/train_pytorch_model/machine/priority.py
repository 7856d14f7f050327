"""Threads that decode, write, and talk to MLflow give way to the training thread."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

SWITCH_S = 0.0005  # the default is ten times that, and each operation of a forward pass may wait for it

OPENMP = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "5000"}
"""Environment variables of PyTorch's own threads, read when it loads.

By default they spin while they wait for each other: with anything else on the cores, such as decoding, two of
them are then slower than one. Sleeping immediately makes them 3 to 4 times faster there, but each operation
has to wake them. Spinning for a few microseconds first costs nothing on busy cores, and is up to 15 % faster
on idle ones.
"""


@contextmanager
def short_switch_interval() -> Iterator[None]:
    """A `with` in which a thread that computes in Python soon gives way to a waiting one.

    Next to such a thread, a step of a ResNet-18 takes twice its time by default, and 6 % more here.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
