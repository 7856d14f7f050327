"""What the operating system reports about other processes."""

import os
import signal
import subprocess
import sys

import pytest

from train_pytorch_model.machine.liveness import is_stopped, start_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no /proc")

SLEEPER = "import time; print(flush=True); time.sleep(600)"
PARENT = f"""
import subprocess, sys
from train_pytorch_model.machine.liveness import end_with_parent
code = "import os; from train_pytorch_model.machine.liveness import end_with_parent;"
code += "end_with_parent(int({{!r}} or os.getppid()));".format(sys.argv[1])
child = subprocess.Popen([sys.executable, "-c", code + {SLEEPER!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, child.wait() if sys.argv[1] else "", flush=True)
"""


def test_a_process_has_a_start_time_as_long_as_it_lives() -> None:
    started = start_of(os.getpid())
    assert started is not None
    assert int(started) > 0
    assert start_of(os.getpid()) == started
    assert start_of(1 << 22) is None


def test_a_stopped_process_is_distinguished_from_a_running_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    assert not is_stopped(child.pid)
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    assert is_stopped(child.pid)
    assert start_of(child.pid) is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert start_of(child.pid) is None  # a zombie: nobody has waited for it yet
    assert not is_stopped(child.pid)
    child.communicate()


def test_a_process_ends_with_its_parent() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, ""], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline().split()[0])
    parent.communicate()
    while start_of(child) is not None:  # the system ends it; otherwise this test times out
        os.sched_yield()


def test_a_process_whose_parent_has_already_ended_ends_at_once() -> None:
    parent = subprocess.run(
        [sys.executable, "-c", PARENT, "1"], capture_output=True, text=True, check=True
    )
    assert parent.stdout.split()[1] == str(128 + signal.SIGKILL)
