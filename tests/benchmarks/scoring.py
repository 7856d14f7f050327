"""Scoring a folder, with all it writes, against decoding the same images and running the network on
them.
"""

import logging
import os
import tempfile
import time
from collections.abc import Callable
from itertools import count
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tests.benchmarks.timing import Measure, arguments, measure_in_turn, paint_photos, show
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.classifier import BATCH_SIZE, ImageClassifier, best_device
from train_pytorch_model.image_classifier.pixels import read_pixels
from train_pytorch_model.inputs.scoring import ScoringInputs, open_scoring_inputs
from train_pytorch_model.machine.memory import keep_freed_memory
from train_pytorch_model.machine.threads import short_switch_interval
from train_pytorch_model.networks.build import build_model
from train_pytorch_model.stories.score import ScoreOptions, score


def main() -> None:
    """Print images per second, and seconds of all cores per 1,000 images."""
    parser = arguments(__doc__)
    parser.add_argument("--trained-model", type=Path, required=True)
    parser.add_argument(
        "--count", type=int, default=10_000, help="images to paint without --images"
    )
    chosen = parser.parse_args()
    logging.getLogger("train_pytorch_model").setLevel(logging.ERROR)
    keep_freed_memory()
    world = World(0, 1, 0, 1, best_device())
    torch.set_num_threads(world.cores)
    with tempfile.TemporaryDirectory() as folder, short_switch_interval():
        images = chosen.images or paint_photos(Path(folder) / "images", chosen.count // 4)
        inputs = open_scoring_inputs(chosen.trained_model, images)
        network = build_model(inputs.model, inputs.spec.categories)
        classifier = ImageClassifier(inputs.spec, network, world.device)
        outputs = (Path(folder) / f"scores {number}" for number in count())

        def scoring(options: ScoreOptions) -> Measure:
            return lambda: _measure(
                len(inputs.images), lambda: score(inputs, next(outputs), options, world)
            )

        contenders: dict[str, Measure] = {
            "decode and forward": lambda: _measure(
                len(inputs.images), lambda: _decode_and_forward(inputs, classifier)
            ),
            "score": scoring(ScoreOptions()),
            "score, with embeddings and what to label": scoring(
                ScoreOptions(None, "float16", 1000)
            ),
        }
        show(measure_in_turn(contenders, chosen.repeats))


def _decode_and_forward(inputs: ScoringInputs, classifier: ImageClassifier) -> None:
    """Take one batch after the other, and write nothing."""
    framing = inputs.spec.framing
    for start in range(0, len(inputs.images), BATCH_SIZE):
        indices = range(start, min(start + BATCH_SIZE, len(inputs.images)))
        pixels = [
            read_pixels(inputs.images.path(index), framing.short_side, framing.colours)
            for index in indices
        ]
        batch = np.stack([framing.apply(Image.fromarray(each)) for each in pixels])
        classifier.predict(torch.from_numpy(batch))


def _measure(num_images: int, run: Callable[[], object]) -> dict[str, float]:
    started_at, used_s = time.perf_counter(), _cpu_s()
    run()
    elapsed_s = time.perf_counter() - started_at
    # The time of decoders, children of multiprocessing's server, counts once it has been waited
    # for.
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    return {
        "images/s": num_images / elapsed_s,
        "CPU seconds per 1,000 images": (_cpu_s() - used_s) / num_images * 1000,
    }


def _cpu_s() -> float:
    """The seconds of all cores, of this process and those that it has waited for."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()
