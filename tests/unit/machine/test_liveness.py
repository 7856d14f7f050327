"""What the operating system reports about other processes."""

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from train_pytorch_model.machine import liveness
from train_pytorch_model.machine.liveness import (
    describe_this_process,
    is_gone,
    is_stopped,
    start_of,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no /proc")

SLEEPER = "import time; print(flush=True); time.sleep(600)"
DESCRIBER = (
    "import time; from train_pytorch_model.machine.liveness import describe_this_process as own;"
    " print(repr(own()), flush=True); time.sleep(600)"
)
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


def test_a_process_is_gone_when_it_has_ended_even_if_nobody_has_waited_for_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", DESCRIBER], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    described = ast.literal_eval(child.stdout.readline())
    assert not is_gone(described)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(described)  # a zombie
    child.communicate()
    assert is_gone(described)


def test_another_process_with_the_same_number_is_not_the_one_that_described_itself() -> None:
    own = describe_this_process()
    assert not is_gone(own)
    assert is_gone(re.sub(r"started \d+", "started 12", own))


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(" on ", " on another-"),
        lambda text: re.sub(r"pid:\[\d+\]", "pid:[1]", text),
        lambda text: re.sub(r"(started \d+) \S+", r"\1 0-another-start-of-the-system", text),
        lambda text: text.splitlines()[0],
        lambda text: text[:-1],
        lambda text: text.replace("process ", "process -"),
        lambda _: "",
        lambda _: "0123456789abcdef" * 2,  # the token of a run
    ],
)
def test_of_a_process_elsewhere_or_unknown_it_is_in_doubt(change: Callable[[str], str]) -> None:
    gone = re.sub(r"started \d+", "started 12", describe_this_process())
    assert is_gone(gone)
    assert not is_gone(change(gone))


def test_where_a_container_sees_the_processes_of_its_host_all_are_in_doubt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gone = re.sub(r"started \d+", "started 12", describe_this_process())
    monkeypatch.setattr(Path, "readlink", lambda _: Path("1"))
    assert describe_this_process().count("\n") == 1
    assert not is_gone(gone)


def test_a_process_that_is_hidden_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = re.sub(r"started \d+", "started 12", describe_this_process())
    monkeypatch.setattr(liveness, "_stat", lambda _: None)  # as with `hidepid`
    assert not is_gone(gone)
