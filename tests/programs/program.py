"""Run the program in this process, which has already loaded PyTorch, or in a separate one."""

import os
import signal
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import torch

from train_pytorch_model.__main__ import main
from train_pytorch_model.machine import cores
from train_pytorch_model.tracking import tracker

THREADS = {"OMP_NUM_THREADS": "2"}  # for the same bits on any machine, however busy
# Printed by every training on the folders of these tests, which hold four painted images per
# category.
FEW_IMAGES = (
    "Warning: Training images per category: 4 on average, few to train from scratch. Pretrained"
    " weights need"
    " far fewer: `init-model --pretrained`, or `--weights-file`.\n"
)


@dataclass(frozen=True)
class Ended:
    """The exit status and output of a program."""

    status: int
    stdout: str
    stderr: str


class _Stream(StringIO):
    """Captures what is printed. A crash of the interpreter itself still reaches the real standard
    error."""

    def fileno(self) -> int:
        return 2


def run_program(*arguments: str | Path) -> Ended:
    """Run `train-pytorch-model ARGUMENTS` in this process, and restore its state afterwards."""
    stdout, stderr = _Stream(), _Stream()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    status: str | int | None = 0
    with (
        patch.object(sys, "argv", ["train-pytorch-model", *map(str, arguments)]),
        patch.dict(os.environ, THREADS),  # a worker writes its rank there
        patch.object(tracker, "CLOSING_S", 600.0),  # the machine may be busy with other tests
        patch.object(cores, "usable_cores", lambda: 1),  # which use the other cores
        redirect_stdout(stdout),
        redirect_stderr(stderr),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # MLflow's warnings about its dependencies
        warnings.filterwarnings("error", module="train_pytorch_model")
        try:
            main()
        except SystemExit as end:
            status = end.code
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
    assert status is None or isinstance(status, int)
    return Ended(status or 0, stdout.getvalue(), stderr.getvalue())


def run_process(*command: str | Path) -> Ended:
    """Run a command in a separate process."""
    ended = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, env=os.environ | THREADS
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def train_arguments(
    folders: Path, untrained_model: Path, output: Path, *more: str, training: Path | None = None
) -> list[str]:
    """The command line of a training on painted folders, including the verb."""
    ports = {
        "--untrained-model": untrained_model,
        "--training-dataset": training or folders / "training",
        "--validation-dataset": folders / "validation",
        "--trained-model": output,
    }
    return [
        "train",
        *(str(text) for port in ports.items() for text in port),
        "--batch-size",
        "4",
        *more,
    ]


def score(model: Path, images: Path, output: Path, *more: str) -> Ended:
    """Run `score`."""
    return run_program(
        "score", "--trained-model", model, "--dataset", images, "--scored-dataset", output, *more
    )


def read_weights(directory: Path) -> dict[str, torch.Tensor]:
    """The state dict of a model directory."""
    state: dict[str, torch.Tensor] = torch.load(directory / "model", weights_only=True)
    return state


def assert_refused(ended: Ended, status: int, *texts: str) -> None:
    """Check that the program printed one message for users, with these texts, and its status."""
    assert ended.status == status, ended.stderr
    assert ended.stderr.startswith(texts[0])
    for text in texts:
        assert text in ended.stderr
    assert "Traceback" not in ended.stdout + ended.stderr
    assert "Error: " not in ended.stdout
