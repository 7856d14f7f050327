"""Fine-tuning: the program, which keeps what is not trained, and a plain script.

CPU and wall time of the whole command over the images of all epochs. With `--freeze-backbone`, both
train the last layer alone.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import torchvision
from torch import save

from tests.benchmarks import timing
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe


def main() -> None:
    """Run both in turn; print the tables."""
    parser = timing.arguments_of_training(__doc__)
    parser.add_argument("--freeze-backbone", action="store_true", help="train the last layer only")
    chosen = parser.parse_args()
    if chosen.avx2:
        os.environ |= timing.AVX2_ONLY  # which both inherit
    with tempfile.TemporaryDirectory() as folder:
        images = chosen.images or timing.paint_photos(Path(folder) / "images", 40)
        num_images = timing.count_images(images) * chosen.epochs
        weights, untrained = Path(folder) / "weights.pth", Path(folder) / "untrained"
        # Features of random weights take as long as others.
        save(torchvision.models.get_model(chosen.architecture, weights=None).state_dict(), weights)
        recipe = Recipe(
            image_size=chosen.image_size,
            freeze_backbone=chosen.freeze_backbone,
            precision="float32" if chosen.avx2 else "auto",
        )
        InitModel(
            architecture=chosen.architecture, output=untrained, weights_file=weights, recipe=recipe
        ).run()
        lengths = (chosen.batch_size, chosen.epochs)
        plain = (
            "-m",
            f"{timing.CONTENDERS}.plain",
            images,
            chosen.architecture,
            chosen.image_size,
            *lengths,
            *(["--frozen"] if chosen.freeze_backbone else []),
        )
        ours = ("-m", f"{timing.CONTENDERS}.ours", untrained, images, *lengths)
        contenders = {
            "plain float32 script": lambda: _measure(num_images, *plain),
            "this program": lambda: _measure(num_images, *ours),
        }
        timing.show(timing.measure_in_turn(contenders, chosen.repeats))


def _measure(num_images: int, *command: object) -> dict[str, float]:
    started_at = time.perf_counter()
    found = timing.run_json(sys.executable, *map(str, command))
    return {
        "CPU seconds per 100 images": 100 * found["cpu_s"] / num_images,
        "wall seconds per 100": 100 * (time.perf_counter() - started_at) / num_images,
    }


if __name__ == "__main__":
    main()
