"""Decoding and cropping on one core: as most scripts do, as the program does, and from its decode
cache.
"""

import io
import random
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

import torch
from PIL import Image
from torchvision import transforms

from tests.benchmarks.timing import Measure, arguments, measure_in_turn, paint_photos, show
from train_pytorch_model.data.augment import mirror, random_resized_crop
from train_pytorch_model.formats.listing import SUFFIXES
from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.image_classifier.pixels import read_pixels

SIZE = 224


def main() -> None:
    """Print images per second of each way."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--count", type=int, default=100, help="number of images, the first of the folder"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        root = chosen.images or paint_photos(Path(folder) / "images", 25)
        paths = sorted(path for path in root.rglob("*") if path.suffix.lower() in SUFFIXES)[
            : chosen.count
        ]
        show(measure_in_turn(_ways([path.read_bytes() for path in paths]), chosen.repeats))


def _ways(files: list[bytes]) -> Mapping[str, Measure]:
    plain = transforms.Compose(
        [
            transforms.RandomResizedCrop(SIZE),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    decoded = [read_pixels(io.BytesIO(file), SIZE) for file in files]

    def cropped(index: int, pixels: object) -> None:
        crop = random_resized_crop(pixels, SIZE, SIZE, 0.08, Random(index))  # type: ignore[arg-type]
        if index % 2:
            mirror(crop)

    def pillow(index: int) -> None:
        image = decode(io.BytesIO(files[index]), SIZE)
        image.resize(
            (SIZE, SIZE), Image.Resampling.BILINEAR, box=(9, 9, image.width - 9, image.height - 9)
        )

    ways: dict[str, Callable[[int], object]] = {
        "Pillow, torchvision's transforms, float32": lambda index: plain(
            Image.open(io.BytesIO(files[index])).convert("RGB")
        ),
        "Pillow, bytes": pillow,
        "this program": lambda index: cropped(index, read_pixels(io.BytesIO(files[index]), SIZE)),
        "this program, decoded before": lambda index: cropped(index, decoded[index]),
    }

    def measure(way: Callable[[int], object]) -> Mapping[str, float]:
        random.seed(0)
        torch.manual_seed(0)
        started_at = time.process_time()  # of this process alone, so that other load does not count
        for index in range(len(files)):
            way(index)
        return {
            "images per second of processor time": len(files) / (time.process_time() - started_at)
        }

    return {name: lambda way=way: measure(way) for name, way in ways.items()}  # type: ignore[misc]


if __name__ == "__main__":
    main()
