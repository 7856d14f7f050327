"""Which planted copies are found, which distinct images are taken for copies, and what it costs.

python -m tests.benchmarks.data_quality.twins --images DIR: for each kind of copy, the share of
images whose copy is paired with them (recall), and pairs of other images per 1,000 (false). Without
a folder, scenes are painted. `--many N` times the search among N random hashes, one in ten with a
copy that differs in one byte.
"""

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from tests.benchmarks.timing import arguments, machine
from tests.painting import paint_scene, through_jpeg
from train_pytorch_model.image_classifier.decoding import decode
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.perceptual_hash import perceptual_hash

SHORT_SIDE = 224  # px, as in training


def crop(image: Image.Image, share: float) -> Image.Image:
    """The image without this share of each side."""
    x, y = round(image.width * share), round(image.height * share)
    return image.crop((x, y, image.width - x, image.height - y))


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "identical": lambda image: image,
    "JPEG quality 60": through_jpeg,
    "half size": lambda image: image.resize((max(1, image.width // 2), max(1, image.height // 2))),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
    "mirrored, JPEG quality 60": lambda image: through_jpeg(
        image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    ),
    "cropped by 1 % on each side": lambda image: crop(image, 0.01),
    "cropped by 2 % on each side": lambda image: crop(image, 0.02),
    "cropped by 5 % on each side": lambda image: crop(image, 0.05),
}


def main() -> None:
    """Print the tables."""
    parser = arguments(__doc__)
    parser.add_argument(
        "--many", type=int, default=0, help="hashes among which the search is timed"
    )
    options = parser.parse_args()
    print(machine())
    if options.many:
        time_search(options.many)
        return
    images = read(options.images)
    started_at = time.process_time()
    hashes = np.stack([perceptual_hash(np.asarray(image)) for image in images])
    each_ms = 1000 * (time.process_time() - started_at) / len(images)
    print(f"\n{len(images):,} images, {each_ms:.2f} ms to hash one\n")
    print("| copies | recall | false per 1,000 |\n|---|---|---|")
    for kind, make in COPIES.items():
        copies = np.stack([perceptual_hash(np.asarray(make(image))) for image in images])
        # Identical copies share a hash, and form a star with the first image of that hash.
        found = find_pairs(np.concatenate([hashes, copies])).images
        is_right = found[:, 1] - found[:, 0] == len(images)
        recall, others = is_right.sum() / hashes.any(axis=1).sum(), (~is_right).sum()
        print(f"| {kind} | {recall:.1%} | {1000 * others / len(images):.2f} |")


def read(folder: Path | None) -> list[Image.Image]:
    """The images of a folder, or 1,000 painted ones."""
    if folder is None:
        return [paint_scene(index, (320, 240)) for index in range(1000)]
    files = sorted(
        path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    return [decode(path, SHORT_SIDE) for path in files]


def time_search(count: int) -> None:
    """Print how long the search takes, and how many of the planted pairs it finds."""
    random = np.random.default_rng(1)
    hashes = random.integers(0, 256, (count, 16), dtype=np.uint8)
    copies = hashes[: count // 10].copy()
    changed = np.arange(len(copies)), random.integers(0, 16, len(copies))
    copies[changed] ^= random.integers(1, 256, len(copies), np.uint8)
    started_at = time.process_time()
    found = len(find_pairs(np.concatenate([hashes, copies])).images)
    elapsed_s = time.process_time() - started_at
    print(
        f"\n{count + len(copies):,} hashes: {elapsed_s:.1f} s, {found:,} of {len(copies):,} pairs"
    )


if __name__ == "__main__":
    main()
