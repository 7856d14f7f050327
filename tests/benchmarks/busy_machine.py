"""Training on two cores beside a process that computes on one of them, with threads chosen and
fixed.

The first row is one thread with nothing beside it. The program chooses its threads when it starts,
and looks again every half minute.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.timing import (
    arguments,
    count_images,
    measure_in_turn,
    paint_photos,
    run_json,
    show,
)
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.machine.threads import FIXED_BY

OURS = Path(__file__).with_name("contenders") / "ours.py"
BUSY = (sys.executable, "-c", "while True: pass")


def main() -> None:
    """Print images per second and CPU seconds per image of each."""
    parser = arguments(__doc__)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--image-size", type=int, default=96)
    parser.add_argument("--epochs", type=int, default=3)
    chosen = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])  # of the child processes, too
    os.environ.pop(FIXED_BY, None)
    with tempfile.TemporaryDirectory() as folder:
        size = chosen.image_size
        images = chosen.images or paint_photos(Path(folder) / "images", 60, (size, size))
        untrained = Path(folder) / "untrained"
        recipe = Recipe(image_size=size, training_size=size)
        InitModel(architecture=chosen.architecture, output=untrained, recipe=recipe).run()
        trained = count_images(images) * chosen.epochs

        def measure(threads: int | None, is_busy: bool) -> Mapping[str, float]:
            fixed = {FIXED_BY: str(threads)} if threads else {}
            command = map(str, (sys.executable, OURS, untrained, images, 16, chosen.epochs))
            other = subprocess.Popen(BUSY) if is_busy else None
            try:
                found = run_json(*command, env=fixed)
            finally:
                if other:
                    other.kill()
                    other.wait()
            rates: list[float] = found["rates"]
            # What the busy process has computed is a child's time as well, but counted only after
            # this run.
            return {"images/s, best epoch": max(rates), "CPU s per image": found["cpu_s"] / trained}

        contenders = {
            "one thread, alone": lambda: measure(1, False),
            "one thread beside it": lambda: measure(1, True),
            "two threads beside it": lambda: measure(2, True),
            "this program beside it": lambda: measure(None, True),
            "two threads, alone": lambda: measure(2, False),
        }
        show(measure_in_turn(contenders, chosen.repeats))


if __name__ == "__main__":
    main()
