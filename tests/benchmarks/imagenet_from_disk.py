"""Images per second over two epochs of JPEGs of ImageNet's sizes, read from disk with no cache.

The files are a few hundred different pictures, painted with the sizes, and about the bytes, of
ImageNet's; further ones are hard links to these, so that 1.28 million take minutes to make and 60
MB. Each is opened, read and decoded by itself, as if they differed. What the links hide is the
disk: its pages are in memory. `--copies` writes files of their own instead, 110 kB each.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sized
from pathlib import Path
from unittest.mock import patch

import numpy as np
from PIL import Image, ImageFilter

from tests.benchmarks.timing import machine
from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data import cache_budget
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.machine.console import set_up
from train_pytorch_model.publishing import examine
from train_pytorch_model.stories.train import train

IMAGENET = 1_281_167
DIFFERENT = 512
CATEGORIES = 1000
# The most common sizes of ImageNet's training images, (width, height).
SIZES = ((500, 375), (500, 333), (375, 500), (500, 400), (400, 300), (640, 480), (500, 500))


def main() -> None:
    """Make the files, train on them for two epochs, print the rates of both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=IMAGENET)
    parser.add_argument("--architecture", default="resnet50")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--folder", type=Path, help="where to make the files, or has made them")
    parser.add_argument("--copies", action="store_true", help="no links: a file each")
    parser.add_argument("--deterministic", action="store_true")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = chosen.folder or Path(scratch, "images")
        if not root.exists():
            started_at = time.perf_counter()
            num_bytes = make_images(root, chosen.images, chosen.copies)
            print(
                f"made in {time.perf_counter() - started_at:.0f} s: {num_bytes / 1e3:.0f} kB each"
            )
        untrained = Path(scratch, "untrained")
        recipe = Recipe(
            image_size=224,
            training_size=224,
            augmentation="random-resized-crop",
            deterministic=chosen.deterministic,
        )
        InitModel(architecture=chosen.architecture, output=untrained, recipe=recipe).run()
        cache_budget.MEMORY_FRACTION = 0.0  # no cache
        trained = Path(scratch, "trained")
        config = TrainConfig(epochs=2, batch_size=chosen.batch_size, print_frequency=500)
        inputs = open_training_inputs(untrained, root / "training", root / "validation", 2)
        set_up()
        # Every file has thousands of twins here, which are not what is measured.
        without_twins = patch.object(examine, "find_twins", _no_twins)
        with join_world() as world, without_twins:
            train(config, inputs, trained, world)
        records = [json.loads(line) for line in (trained / "metrics.jsonl").open()]
    print(machine())
    for number, record in enumerate(records, 1):
        rate = record["Train images per second"]
        print(
            f"epoch {number}: {rate:,.0f} images/s of {chosen.images:,} images,"
            f" {chosen.architecture} at 224 px, batches of {chosen.batch_size}, no cache"
        )


def make_images(root: Path, count: int, copies: bool) -> float:
    """Paint the different images, and link or copy them; return the mean size of a file."""
    rng = np.random.default_rng(0)
    pictures = root / "different"
    pictures.mkdir(parents=True)
    files = [_paint(pictures / f"{index}.jpg", rng) for index in range(DIFFERENT)]
    place = shutil.copyfile if copies else os.link
    for part, images in (("training", count), ("validation", min(count, 5_000))):
        for index in range(images):
            folder = root / part / f"n{index % CATEGORIES:04d}"
            if index < CATEGORIES:
                folder.mkdir(parents=True, exist_ok=True)
            place(files[(index * 7 + index // DIFFERENT) % DIFFERENT], folder / f"{index}.jpg")
    return float(np.mean([path.stat().st_size for path in files]))


def _no_twins(_: object, validation: Sized, *__: object) -> tuple[list[object], np.ndarray]:
    return [], np.zeros(len(validation), bool)


def _paint(path: Path, rng: np.random.Generator) -> Path:
    """Write noise of several scales, as photographs have it, which takes about 110 kB."""
    width, height = SIZES[int(rng.integers(len(SIZES)))]
    picture = np.zeros((height, width, 3))
    for scale in (2, 8, 32, 128):
        small = rng.integers(0, 256, (height // scale + 2, width // scale + 2, 3), dtype=np.uint8)
        layer = Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)
        picture += np.asarray(layer, np.float64) / 4
    image = Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8))
    image.filter(ImageFilter.GaussianBlur(0.6)).save(path, quality=92)
    return path


if __name__ == "__main__":
    main()
