"""Run by the tests: imports everything once, and forks a process of the program for each trial.

A trial then takes two seconds instead of ten. Orders arrive as lines of JSON on standard input.
"""

import json
import os
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import mlflow.pyfunc
import pandas as pd
import scipy.optimize
import timm
from PIL import Image

from tests.faults.trials import inject
from train_pytorch_model.__main__ import main
from train_pytorch_model.commands.program import leave_after
from train_pytorch_model.image_classifier.architectures import torchvision_models
from train_pytorch_model.stories import evaluate, score, train

STATUSES: dict[int, int] = {}
"""Exit statuses of the processes that have ended, by pid."""

__all__ = ["evaluate", "mlflow", "pd", "score", "scipy", "timm", "train"]


def load() -> None:
    """Load what a training imports on its way: that is three quarters of a small one's time."""
    torchvision_models()
    Image.init()


def serve() -> dict[str, Any] | None:
    """Follow orders.

    Return the order in a process forked for it, and None when there are no more.
    """
    for line in sys.stdin:
        order = json.loads(line)
        if "arguments" in order:
            pid = os.fork()
            if pid == 0:
                return dict(order)
            answer: int | None = pid
        else:
            answer = _wait(order["pid"], order["timeout_s"])
        print(json.dumps(answer), flush=True)
    return None


def _wait(pid: int, timeout_s: float) -> int | None:
    """Return the exit status, -n after signal n; None if the process has not ended in time."""
    deadline = time.monotonic() + timeout_s
    while pid not in STATUSES:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            STATUSES[pid] = os.waitstatus_to_exitcode(status)
        elif time.monotonic() > deadline:
            return None
        else:
            time.sleep(0.02)
    return STATUSES[pid]


def run(order: dict[str, Any]) -> None:
    """Run the program as if started from the command line."""
    os.setsid()
    for descriptor, path in enumerate([os.devnull, order["stdout"], order["stderr"]]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["train-pytorch-model", *order["arguments"]]
    # Decoder processes would import this one again.
    sys.modules["__main__"] = ModuleType("__main__")
    os.environ.update(order["environment"])
    inject(order["injections"])
    leave_after(main)


if __name__ == "__main__":
    load()
    forked = serve()
    if forked is not None:
        run(forked)
