"""Threads that give way to the training thread."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from train_pytorch_model.machine.priority import NICENESS, SWITCH_S, lower_priority, short_switch_interval


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_the_switch_interval_is_shortened_temporarily() -> None:
    before = sys.getswitchinterval()
    with short_switch_interval():
        assert sys.getswitchinterval() == pytest.approx(SWITCH_S, rel=0.01)
    assert sys.getswitchinterval() == before


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own")
def test_the_priority_of_a_single_thread_is_lowered() -> None:
    before = niceness()
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        assert pool.submit(niceness).result() == max(before, NICENESS)
    assert niceness() == before
