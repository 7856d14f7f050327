"""Count images that can be told from their mirror images, and time it."""

import sys
import time
from pathlib import Path

import torch

from tests.benchmarks.timing import machine
from train_pytorch_model.data.pixel_decisions import count_distinguishable
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.image_classifier.colours import DEFAULT_COLOURS


def main() -> None:
    """Print a line for each directory on the command line."""
    print(machine())
    for name in sys.argv[1:]:
        images = open_image_directory(Path(name), "Images")
        started_at = time.perf_counter()
        some, count = count_distinguishable(
            images, DEFAULT_COLOURS, World(0, 1, 0, 1, torch.device("cpu"))
        )
        print(f"{name}: {some} of {count}, {time.perf_counter() - started_at:.2f} s")


if __name__ == "__main__":
    main()
