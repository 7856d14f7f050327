"""A program from its command line to its exit status."""

import importlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from train_pytorch_model.commands import exit_on_interrupt
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.program import run_verbs
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.submit import Submit
from train_pytorch_model.commands.train import Train
from train_pytorch_model.errors import FailedWorkersError


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["tain", "--epochs", "3"],
            '"tain" is not a verb. Did you mean "train"? The verbs are train, score;',
        ),
        (["predict"], '"predict" is not a verb. Did you mean "score"? The verbs are train, score;'),
        (["export"], '"export" is not a verb. The verbs are train, score;'),
        (["--epochs", "3"], 'a verb comes before the options: "program VERB --epochs …".'),
    ],
)
def test_a_command_line_without_a_verb_is_refused_in_one_message(
    arguments: list[str],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    with pytest.raises(SystemExit) as end:
        run_verbs({"train": Train, "score": Score}, "program", "")
    message = capsys.readouterr().err
    assert end.value.code == 2
    assert message.startswith(f"ParameterError: {told}")
    assert message.count("\n") == 1


def test_an_option_of_another_verb_is_reported_with_that_verb(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "score",
        "--architecture=resnet18",
        "--pretrained",
        "--top-k",
        "3",
        "--no-such-option",
    ]
    monkeypatch.setattr(sys, "argv", ["program", *arguments])
    with pytest.raises(SystemExit) as end:
        run_verbs({"init-model": InitModel, "submit": Submit, "score": Score}, "program", "")
    assert end.value.code == 2
    assert capsys.readouterr().err.splitlines()[-2:] == [
        "--architecture is not an option of score, but of init-model and submit.",
        "--pretrained is not an option of score, but of init-model and submit.",
    ]


# For another process, because it ends the process that runs it.
LEAVING = """
import atexit, sys, threading, time
from train_pytorch_model.commands.program import leave_after

class Loaded:
    def __del__(self):
        print("taken apart")

loaded = Loaded()

def work():
    time.sleep(0.1)
    print("of a thread")

def main():
    atexit.register(print, "registered")
    threading.Thread(target=work).start()
    print("printed", end=", ")
    print("said", end=", ", file=sys.stderr)
    {end}

leave_after(main)
"""


@pytest.mark.parametrize(
    ("end", "status"), [("pass", 0), ("sys.exit()", 0), ("sys.exit(3)", 3), ("sys.exit(False)", 0)]
)
def test_a_process_ends_without_finalising_its_objects(end: str, status: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING.format(end=end)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == status
    assert ended.stdout == "printed, of a thread\nregistered\n"
    assert ended.stderr == "said, "


@pytest.mark.parametrize(
    ("end", "said"),
    [("sys.exit('a word')", "a word\n"), ("1 / 0", "ZeroDivisionError: division by zero\n")],
)
def test_unhandled_errors_are_reported_as_python_does(end: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", LEAVING.format(end=end)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert ended.stdout == "printed, of a thread\nregistered\n"
    assert ended.stderr.endswith(said)


# A verb that is interrupted and receives another signal while it ends, at one of two moments.
INTERRUPTED = """
import atexit, os, signal
from dataclasses import dataclass
from pathlib import Path
from train_pytorch_model.commands.program import leave_after, run_verbs
from train_pytorch_model.machine.stop_requests import StoppedError

@dataclass(frozen=True)
class Verb:
    EXAMPLE = ""

    def run(self):
        atexit.register(os.kill, os.getpid(), signal.{last})
        try:
            {first}
        finally:
            {further}

leave_after(lambda: run_verbs({{"verb": Verb}}, "program", ""))
"""
STOPPED = "raise StoppedError(signal.SIGTERM, Path('checkpoints'), is_saved=True)"


@pytest.mark.skipif(os.name == "nt", reason="signals are sent")
@pytest.mark.parametrize(
    ("first", "further", "said"),
    [
        ("raise KeyboardInterrupt", "pass", "Interrupted. No output was written."),
        (
            "os.kill(os.getpid(), signal.SIGTERM)",
            "pass",
            "Stopped by SIGTERM. No output was written.",
        ),
        (
            "os.kill(os.getpid(), signal.SIGHUP)",
            "pass",
            "Stopped by SIGHUP. No output was written.",
        ),
        (
            STOPPED,
            "pass",
            "Stopped by SIGTERM. The same command resumes from here; the checkpoint is in",
        ),
        (
            STOPPED,
            "raise KeyboardInterrupt",
            "Stopped by SIGTERM. The same command resumes from here; the",
        ),
    ],
    ids=["SIGINT", "SIGTERM", "SIGHUP", "stopped", "stopped, then SIGINT"],
)
@pytest.mark.parametrize("last", ["SIGINT", "SIGTERM"])
def test_another_signal_ends_a_process_that_is_ending_silently(
    first: str, further: str, said: str, last: str
) -> None:
    code = INTERRUPTED.format(first=first, further=further, last=last)
    ended = subprocess.run(
        [sys.executable, "-c", code, "verb"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.Signals[last]
    assert ended.stderr.startswith(f"\n{said}")
    assert ended.stderr.count("\n") == 2


@pytest.mark.skipif(os.name == "nt", reason="signals are sent")
def test_ignored_signals_stay_ignored_to_the_end() -> None:
    """Such as SIGHUP under nohup."""
    code = INTERRUPTED.format(first="raise KeyboardInterrupt", further="pass", last="SIGHUP")
    nohup = ["sh", "-c", 'trap "" HUP; exec "$0" -c "$1" verb', sys.executable, code]
    assert subprocess.run(nohup, capture_output=True, check=False).returncode == 130


@pytest.mark.skipif(os.name == "nt", reason="a POSIX shell closes the stream")
def test_a_process_keeps_its_exit_status_if_stderr_is_closed() -> None:
    code = LEAVING.format(end="sys.exit(3)")
    ended = subprocess.run(["sh", "-c", '"$0" -c "$1" 2>&-', sys.executable, code], check=False)
    assert ended.returncode == 3


def test_a_program_works_without_a_standard_output(tmp_path: Path) -> None:
    """As under a daemon, or `pythonw` on Windows."""
    code = "import sys; sys.stdout = None\n"
    code += "sys.argv[1:] = ['init-transformation', '--resize', 'true', '--output', 'out']\n"
    code += "from train_pytorch_model.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (tmp_path / "out" / "_meta.yaml").exists()
    quiet = code.replace("sys.stdout", "sys.stdout = sys.stderr").replace(
        "'out'", "'quiet', '--quiet'"
    )
    assert subprocess.run([sys.executable, "-c", quiet], cwd=tmp_path, check=False).returncode == 0


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (RuntimeError("can't start new thread"), "The system starts no further thread or"),
        (BlockingIOError(11, "no process"), "The system starts no further thread or"),
        (MemoryError("a string"), "The memory of this machine does not suffice: "),
        (RuntimeError("DefaultCPUAllocator: no"), "The memory of this machine does not suffice: "),
        (RuntimeError("a bug"), ""),
    ],
)
def test_a_limit_of_the_system_is_reported_in_one_message(
    problem: Exception,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @dataclass(frozen=True)
    class Verb:
        EXAMPLE = ""

        def run(self) -> None:
            raise problem

    monkeypatch.setattr(sys, "argv", ["program", "verb"])
    with pytest.raises(SystemExit if message else RuntimeError) as end:
        run_verbs({"verb": Verb}, "program", "")
    if message:
        assert isinstance(end.value, SystemExit)
        assert end.value.code == 4
        assert capsys.readouterr().err.startswith(f"SystemLimitError: {message}")


def test_the_status_of_failed_workers_is_that_of_the_program(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @dataclass(frozen=True)
    class Verb:
        EXAMPLE = ""

        def run(self) -> None:
            raise FailedWorkersError(137)

    monkeypatch.setattr(sys, "argv", ["program", "verb"])
    with pytest.raises(SystemExit) as end:
        run_verbs({"verb": Verb}, "program", "")
    assert (end.value.code, capsys.readouterr().err) == (137, "")


def test_ctrl_c_is_an_exception_again_even_after_a_failed_import() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(ImportError), exit_on_interrupt():
            importlib.import_module("no_such_module")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
