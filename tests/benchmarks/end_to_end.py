"""Training from image files: the program, a plain script, timm, and the program's rate without
images.

By default the program trains on smaller images than it predicts: in short trainings until the last
epochs, in long ones on random crops, which have their own row. The other programs train at the full
size, as the program does in one more row.
"""

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from tests.benchmarks.timing import (
    AVX2_ONLY,
    CONTENDERS,
    Measure,
    arguments_of_training,
    count_images,
    measure_in_turn,
    paint_photos,
    run_json,
    show,
)
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import PrecisionName, Recipe


def main() -> None:
    """Run all contenders in turn; print the tables."""
    parser = arguments_of_training(__doc__)
    parser.add_argument(
        "--timm-python", type=Path, help="a Python that has timm; else timm is left out"
    )
    chosen = parser.parse_args()
    precision: PrecisionName = "auto"
    if chosen.avx2:
        os.environ |= AVX2_ONLY  # which all contenders inherit
        precision = "float32"
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images or paint_photos(Path(folder) / "images", 60)
        recipe = Recipe(image_size=chosen.image_size, precision=precision)
        trained = count_images(images) * chosen.epochs

        def program(name: str, recipe: Recipe) -> tuple[object, ...]:
            untrained = Path(folder) / name
            InitModel(architecture=chosen.architecture, output=untrained, recipe=recipe).run()
            ours = (sys.executable, "-m", f"{CONTENDERS}.ours")
            return *ours, untrained, images, chosen.batch_size, chosen.epochs

        own = program("as it comes", recipe)
        full_size = program("full size", replace(recipe, training_size=recipe.image_size))
        in_crops = program("in crops", replace(recipe, augmentation="random-resized-crop"))
        peer = (images, chosen.architecture, chosen.image_size, chosen.batch_size, chosen.epochs)
        contenders: dict[str, Measure] = {
            "plain float32 script": lambda: _measure(
                trained, sys.executable, "-m", f"{CONTENDERS}.plain", *peer
            )
        }
        if chosen.timm_python:
            timm = (chosen.timm_python, "-m", f"{CONTENDERS}.timm_best", *peer)
            if torch.cuda.is_available():
                name = "timm, bfloat16, channels last, prefetcher"
                contenders[name] = lambda: _measure(trained, *timm)
                contenders[f"{name}, compiled"] = lambda: _measure(trained, *timm, "--compile")
            else:
                own_dtype = ("--float32",) if chosen.avx2 else ()
                name = (
                    "timm, float32, channels last"
                    if chosen.avx2
                    else "timm, bfloat16, channels last"
                )
                contenders[name] = lambda: _measure(trained, *timm, *own_dtype)
        contenders["this program, trained at the full size"] = lambda: _measure(trained, *full_size)
        contenders["this program, in crops, as in 12 epochs"] = lambda: _measure(trained, *in_crops)
        contenders["this program"] = lambda: _measure(trained, *own)
        contenders["this program, without images"] = lambda: _rates(
            run_json(*map(str, (*own, "--synthetic")))
        )
        show(measure_in_turn(contenders, chosen.repeats))
    if not chosen.timm_python:
        print("\ntimm was left out: name a Python that has it with --timm-python.")


def _measure(trained: int, *command: object) -> dict[str, float]:
    """Return rates, wall and CPU time of a command, which trains on `trained` images over all
    epochs.

    The times are of the whole run; this program's includes checkpoints, metrics and the model.
    """
    started_at = time.perf_counter()
    found = run_json(*map(str, command))
    return {
        **_rates(found),
        "whole run, s": time.perf_counter() - started_at,
        "whole run, CPU seconds per trained image": found["cpu_s"] / trained,
    }


def _rates(found: Mapping[str, Any]) -> dict[str, float]:
    rates: list[float] = found["rates"]
    later = rates[1:] or rates
    return {
        "images/s, first epoch": rates[0],
        "images/s, later epochs": statistics.harmonic_mean(later),
    }


if __name__ == "__main__":
    main()
