"""Stop requests: the first signal is recorded, a second or the end of the grace period ends the
process.
"""

import os
import pty
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from train_pytorch_model.machine import stop_requests as module
from train_pytorch_model.machine.stop_requests import StoppedError, StopRequests, stop_requests


@pytest.fixture
def ends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The exit statuses with which the process would have ended."""
    statuses: list[int] = []
    monkeypatch.setattr(module, "_end", lambda number: statuses.append(128 + number))
    return statuses


def test_initially_no_stop_is_requested() -> None:
    requests = StopRequests()
    assert requests.signal is None
    assert not requests.wait(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_recorded_and_the_handler_restored(number: signal.Signals) -> None:
    handler = signal.getsignal(number)
    with stop_requests() as requests:
        os.kill(os.getpid(), number)
        assert requests.wait(60)
        assert requests.signal == number
    assert signal.getsignal(number) is handler


def test_a_closed_terminal_is_ignored_under_nohup() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_requests() as requests:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not requests.wait(0.2)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_nothing_is_written_to_a_terminal_that_is_gone() -> None:
    """A process in a terminal of its own prints once more after `leave_terminal`, when that is
    closed.
    """
    ours, theirs = pty.openpty()
    code = "import sys; from train_pytorch_model.machine.stop_requests import leave_terminal\n"
    code += "sys.stdin.readline(); leave_terminal(); print('nobody reads this', flush=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=theirs, stderr=theirs, text=True
    )
    os.close(theirs)
    os.close(ours)
    process.communicate("\n", timeout=60)
    assert process.returncode == 0


def test_a_process_that_is_ended_leaves_no_bar_of_two_lines() -> None:
    ours, theirs = pty.openpty()
    code = """if True:
        import os
        from train_pytorch_model.machine import console, stop_requests
        console.set_up()
        with console.progress_bar(1000, "Epoch 1/5") as bar:
            bar.show(10, *(f"fact {number} is 0.123" for number in range(6)))
            os._exit = lambda status: None  # the thread that draws the bar goes on
            stop_requests._end(2)
            for step in range(1000):
                bar.show(20, "drawn again", *(f"fact {number} is 0.123" for number in range(6)))
            print("printed", flush=True)
            os.kill(os.getpid(), 9)
    """
    env = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
    for name in ("JPY_PARENT_PID", "MPLBACKEND", "RANK"):
        env.pop(name, None)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=theirs, stderr=subprocess.PIPE, env=env
    )
    os.close(theirs)
    shown = b""
    with suppress(OSError), os.fdopen(ours, "rb", buffering=0) as terminal:  # an error at its end
        while part := terminal.read(65536):
            shown += part
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors
    assert b"fact 5" in shown
    assert shown.endswith(b"\r\x1b[2K\x1b[1A\x1b[2K\x1b[?25h")


def test_other_signals_reach_their_own_handlers() -> None:
    heard = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    try:
        with stop_requests() as requests:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert heard.wait(60)
            assert requests.signal is None
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_signals_in_quick_succession_are_one_request(ends: list[int]) -> None:
    requests = StopRequests()
    requests.ask(signal.SIGINT)
    requests.ask(signal.SIGTERM)
    requests.close()
    assert (requests.signal, ends) == (signal.SIGINT, [])


def test_the_second_request_ends_the_process(
    ends: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOGETHER_S", -1.0)
    requests = StopRequests()
    requests.ask(signal.SIGINT)
    requests.ask(signal.SIGINT)
    requests.close()
    assert ends == [130]


def test_the_grace_period_is_extended_by_the_longest_step(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    monkeypatch.setattr(module, "_end", lambda _: over.set())
    monkeypatch.setattr(module, "GRACE_S", -5.0)
    requests = StopRequests()
    requests.longest_step_s = 5.0
    requests.ask(signal.SIGTERM)
    assert over.wait(60)
    requests.close()


def test_a_process_that_ends_by_itself_is_not_ended(ends: list[int]) -> None:
    requests = StopRequests()
    requests.ask(signal.SIGTERM)
    requests.close()
    assert requests._timer is not None
    requests._timer.join(60)
    assert ends == []


def test_the_message_depends_on_whether_a_checkpoint_was_saved() -> None:
    saved = StoppedError(signal.SIGTERM, Path("run/checkpoints"), is_saved=True)
    assert saved.code == 143
    assert saved.message == (
        "Stopped by SIGTERM. The same command resumes from here; the checkpoint is in"
        " run/checkpoints."
    )
    assert StoppedError(signal.SIGINT, Path("run/checkpoints"), is_saved=False).message == (
        "Stopped by SIGINT. No final checkpoint could be written to run/checkpoints; the same"
        " command resumes"
        " from the previous one, if there is any."
    )
