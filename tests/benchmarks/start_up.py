"""Start-up times: help, a refused command, the first line, the checked images, the plan."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.timing import ROOT, arguments, measure_in_turn, paint_photos, show
from train_pytorch_model.commands.init_model import InitModel

BUILD = "from train_pytorch_model.image_classifier.architectures import build\n"
BUILD += "build('resnet18', False, 2)"


def main() -> None:
    """Print seconds until each."""
    chosen = arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images or paint_photos(Path(folder) / "images", 10)
        InitModel(output=Path(folder) / "untrained").run()
        train = [
            "train",
            "--dry-run",
            "--untrained-model",
            f"{folder}/untrained",
            "--trained-model",
            f"{folder}/t",
        ]
        train += ["--training-dataset", str(images), "--validation-dataset"]
        waits = {
            "PyTorch imported": lambda: _seconds("-c", "import torch"),
            "a network built": lambda: _seconds("-c", BUILD),
            "--help": lambda: _seconds_until("", ["--help"]),
            "train --help": lambda: _seconds_until("", ["train", "--help"]),
            "first line": lambda: _seconds_until("Train PyTorch Model", [*train, str(images)]),
            "a folder that is not there is refused": lambda: _seconds_until(
                "", [*train, f"{folder}/none"]
            ),
            "the images are checked": lambda: _seconds_until("Checked", [*train, str(images)]),
            "the plan": lambda: _seconds_until("Model ", [*train, str(images)]),
        }
        show(measure_in_turn(waits, chosen.repeats))


def _seconds(*arguments: str) -> Mapping[str, float]:
    """Seconds that Python takes for something."""
    started_at = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT)
    return {"seconds": time.perf_counter() - started_at}


def _seconds_until(line: str, command: list[str]) -> Mapping[str, float]:
    """Seconds until a line that starts with `line` is printed; without `line`, until the program
    ends.
    """
    started_at = time.perf_counter()
    program = [sys.executable, "-m", "train_pytorch_model", *command]
    with subprocess.Popen(
        program, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT
    ) as process:
        assert process.stdout is not None
        for text in process.stdout:
            if line and text.startswith(line):
                break
        else:
            process.wait()
        elapsed_s = time.perf_counter() - started_at
        process.terminate()
    return {"seconds": elapsed_s}


if __name__ == "__main__":
    main()
