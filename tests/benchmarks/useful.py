"""Time to a useful model: CPU seconds from a command to its first network within two points of its
last one.

Each contender fine-tunes the same weights on the same images, and is judged after every epoch, off
the clock, on images that none of them sees. `--weights-file` are those of a network of timm, which
has to be installed. Ultralytics is left out: it fine-tunes its own networks only, whose weights
have to be downloaded from its site.
"""

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks import timing

POINTS = 0.02  # below the last accuracy
MAX_HELD_OUT = 500
RIGHT = "held-out images right after the last epoch, in %"


def main() -> None:
    """Run all in turn; print the tables."""
    parser = timing.arguments(__doc__)
    parser.add_argument("--architecture", default="tf_efficientnet_lite0", help="of timm")
    parser.add_argument("--weights-file", type=Path, required=True)
    parser.add_argument("--count", type=int, default=200, help="images to train on")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--minutes", type=float, help="of one more contender, `fit --minutes`")
    parser.add_argument("--fastai-python", type=Path, help="a Python that has fastai and timm")
    timing.add_avx2(parser)
    chosen = parser.parse_args()
    if chosen.images is None:
        parser.error("--images: painted ones cannot tell when a model is useful")
    if chosen.avx2:
        os.environ |= timing.AVX2_ONLY  # which all inherit
    precision = "float32" if chosen.avx2 else "auto"
    weights = chosen.weights_file.absolute()
    with tempfile.TemporaryDirectory() as name:
        folders = split(chosen.images, chosen.count, Path(name))
        sizes = (chosen.image_size, chosen.epochs)
        given = (*folders, chosen.architecture, weights, *sizes)
        peer = (sys.executable, "-m", f"{timing.CONTENDERS}.fine_tuned", *given)
        ours = (sys.executable, "-m", f"{timing.CONTENDERS}.fitted", *folders)
        model = ("--architecture", f"timm:{chosen.architecture}", "--weights-file", weights)
        options = (*model, "--image-size", sizes[0], "--precision", precision)
        fitted = (*ours, *options, "--epochs", sizes[1], "--patience", sizes[1])
        timm_flags = ["--timm"] + (["--float32"] if chosen.avx2 else [])
        contenders: dict[str, timing.Measure] = {
            "plain float32 script": lambda: _measure(*peer),
            "timm, channels last": lambda: _measure(*peer, *timm_flags),
            "this program: fit": lambda: _measure(*fitted),
        }
        if chosen.fastai_python:
            fastai = (chosen.fastai_python, "-m", f"{timing.CONTENDERS}.fastai_tuned", *given)
            contenders["fastai, fine_tune"] = lambda: _measure(*fastai)
        if chosen.minutes:
            race = (*ours, "--minutes", chosen.minutes, "--image-size", sizes[0])
            contenders["this program: fit --minutes"] = lambda: _measure(*race)
        timing.show(timing.measure_in_turn(contenders, chosen.repeats))


def split(images: Path, count: int, folder: Path) -> tuple[Path, Path]:
    """Copy images to train on, and some of the others, into two folders; return these."""
    files = sorted(path for path in images.glob("*/*") if path.is_file())
    random.Random(0).shuffle(files)
    parts = {
        folder / "training": files[:count],
        folder / "held out": files[count : count + MAX_HELD_OUT],
    }
    for part, paths in parts.items():
        for path in paths:
            (part / path.parent.name).mkdir(parents=True, exist_ok=True)
            shutil.copy(path, part / path.parent.name)
    training, held_out = parts
    return training, held_out


def _measure(*command: object) -> Mapping[str, float]:
    found = timing.run_json(*map(str, command))
    epochs: list[list[float]] = found["epochs"]
    last = epochs[-1][1]
    first_useful_s = next(cpu_s for cpu_s, right in epochs if right >= last - POINTS)
    return {
        "CPU seconds to the first useful network": first_useful_s,
        "CPU seconds to the last epoch": epochs[-1][0],
        RIGHT: 100 * last,
    }


if __name__ == "__main__":
    main()
