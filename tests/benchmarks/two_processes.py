"""Two processes compared with one process on one core and on two: training and validation from
image files.

Two independent runs, on a core each, show the most that the machine can give two processes; one may
run its last epoch alone.
"""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.benchmarks.timing import arguments, measure_in_turn, paint_photos, run_json, show

OURS = Path(__file__).with_name("contenders") / "ours.py"


def main() -> None:
    """Print images per second of each contender."""
    parser = arguments(__doc__)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from train_pytorch_model.commands.init_model import InitModel
        from train_pytorch_model.config.recipe import Recipe

        images = chosen.images or paint_photos(Path(folder) / "images", 24)
        untrained = Path(folder) / "untrained"
        recipe = Recipe(augmentation="random-resized-crop")  # one size in all epochs
        InitModel(architecture=chosen.architecture, output=untrained, recipe=recipe).run()

        usable = sorted(os.sched_getaffinity(0))

        def measure(processes: int, cores: Sequence[int], batch_size: int) -> Mapping[str, float]:
            launcher = (
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                str(processes),
            )
            own = (OURS, untrained, images, batch_size, chosen.epochs)
            os.sched_setaffinity(0, cores)  # of this thread and its child processes
            try:
                found = run_json(sys.executable, *launcher, *map(str, own))
            finally:
                os.sched_setaffinity(0, usable)
            rates: list[float] = found["rates"]
            return {
                "images/s, first epoch": rates[0],
                "images/s, best later epoch": max(rates[1:] or rates),
            }

        def measure_apart() -> Mapping[str, float]:
            with ThreadPoolExecutor(2) as pool:
                first, second = pool.map(lambda core: measure(1, [core], size), usable[:2])
            return {what: first[what] + second[what] for what in first}

        size = chosen.batch_size
        contenders = {
            "1 process on 1 core": lambda: measure(1, usable[:1], size),
            "1 process on 2 cores": lambda: measure(1, usable[:2], size),
            "2 processes on 2 cores, half a batch each": lambda: measure(2, usable[:2], size // 2),
            "2 processes on 2 cores, a batch each": lambda: measure(2, usable[:2], size),
        }
        if len(usable) > 1:
            contenders["2 runs of 1 core each, apart"] = measure_apart
        show(measure_in_turn(contenders, chosen.repeats))


if __name__ == "__main__":
    main()
