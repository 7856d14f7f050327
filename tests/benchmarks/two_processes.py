"""One process beside two, on the same processors: training and validation from image files."""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.timing import arguments, measure_in_turn, paint_photos, run_json, show

OURS = Path(__file__).with_name("contenders") / "ours.py"


def main() -> None:
    """Print the rates of each."""
    parser = arguments(__doc__)
    parser.add_argument("--architecture", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        from train_pytorch_model.commands.init_model import InitModel

        images = chosen.images or paint_photos(Path(folder) / "images", 24)
        untrained = Path(folder) / "untrained"
        InitModel(architecture=chosen.architecture, output=untrained).run()

        def measure(processes: int) -> Mapping[str, float]:
            launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes))
            own = (OURS, untrained, images, chosen.batch_size // processes, chosen.epochs)
            found = run_json(sys.executable, *launcher, *map(str, own))
            rates: list[float] = found["rates"]  # type: ignore[assignment]  # the one list among numbers
            return {"images/s, first epoch": rates[0], "images/s, best later epoch": max(rates[1:] or rates)}

        show(measure_in_turn({f"{n} process(es)": lambda n=n: measure(n) for n in (1, 2)}, chosen.repeats))  # type: ignore[misc]


if __name__ == "__main__":
    main()
