"""Threads that give way to the training thread."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from train_pytorch_model.machine.priority import NICENESS, SWITCH_S, lower_priority, short_switch_interval
from train_pytorch_model.tracking.mlflow_process import Mlflow
from train_pytorch_model.tracking.tracker import MlflowTracker


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


@pytest.mark.skipif(sys.platform != "linux", reason="a thread has no priority of its own")
def test_the_thread_that_sends_metrics_has_low_priority(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def fail(*_: object) -> None:
        seen.append(niceness())
        raise OSError

    monkeypatch.setattr("train_pytorch_model.tracking.tracker._Run.__init__", fail)
    with MlflowTracker(Mlflow(), {}, tmp_path / "mlflow_run"):
        pass
    assert seen == [max(niceness(), NICENESS)]
