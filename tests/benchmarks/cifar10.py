"""Seconds until a ResNet-18 with its defaults recognizes 94 % of CIFAR-10's test images.

`--images` is a folder with `train` and `test`, each with a folder per category, of the data set's
PNG files. The time is that of the command, from its start until the epoch with 94 % ends, with
everything that training writes; and that of the whole command.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks.timing import machine

GOAL = 0.94


def main() -> None:
    """Train once for each number of epochs; print accuracies and times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path, required=True)
    parser.add_argument("--epochs", type=int, nargs="+", default=[30])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=0.008)
    parser.add_argument("--architecture", default="resnet18")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        untrained = Path(scratch, "untrained")
        _run("init-model", "--architecture", chosen.architecture, "--output", untrained)
        for epochs in chosen.epochs:
            trained = Path(scratch, f"trained-{epochs}")
            started_at = time.perf_counter()
            epoch_ends = _end_of_epochs(
                *("train", "--untrained-model", untrained, "--trained-model", trained),
                *("--training-dataset", chosen.images / "train"),
                *("--validation-dataset", chosen.images / "test"),
                *("--epochs", epochs, "--patience", epochs, "--batch-size", chosen.batch_size),
                *("--learning-rate", chosen.learning_rate, "--print-frequency", 1000),
            )
            whole_s = time.perf_counter() - started_at
            records = [json.loads(line) for line in (trained / "metrics.jsonl").open()]
            rows.append(_row(epochs, records, epoch_ends, whole_s))
    print(machine())
    titles = ("epochs", "best accuracy", "first epoch with 94 %", "seconds to its end")
    print(" | ".join((*titles, "images/s", "whole run, s")))
    for row in rows:
        print(" | ".join(row))


def _row(
    epochs: int, records: list[dict[str, float]], epoch_ends: dict[int, float], whole_s: float
) -> list[str]:
    accuracies = [record["Top 1 accuracy"] for record in records]
    reached = next((index for index, value in enumerate(accuracies, 1) if value >= GOAL), None)
    speed = records[-1]["Train images per second"]
    return [
        str(epochs),
        f"{max(accuracies):.2%}",
        str(reached or "none"),
        f"{epoch_ends[reached]:.1f}" if reached else "none",
        f"{speed:,.0f}",
        f"{whole_s:.1f}",
    ]


def _run(*arguments: object) -> None:
    subprocess.run(_command(arguments), check=True)


def _end_of_epochs(*arguments: object) -> dict[int, float]:
    """Run the program, and return when each epoch was told, in seconds since its start."""
    ends: dict[int, float] = {}
    started_at = time.perf_counter()
    with subprocess.Popen(_command(arguments), stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout
        for line in program.stdout:
            print(line, end="")
            told = re.search(r"Epoch (\d+)/\d+: .*validation loss", line)
            if told:
                ends[int(told[1])] = time.perf_counter() - started_at
    if program.returncode:
        sys.exit(program.returncode)
    return ends


def _command(arguments: Iterable[object]) -> list[str]:
    return [sys.executable, "-m", "train_pytorch_model", *map(str, arguments)]


if __name__ == "__main__":
    main()
