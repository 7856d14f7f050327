"""Real data for trying the whole pipeline without a download: scikit-learn's handwritten digits."""

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from train_pytorch_model.formats.image_directory import write_image_directory

IMAGE_SIDE = 32  # px; the 8 x 8 scans are enlarged to it
FRACTIONS = {"training": 0.7, "validation": 0.15, "held_out": 0.15}
SEED = 1
# As words: the designer's Score Image Model turns digits into numbers, and training warns about such names.
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FLAG = "--output"


def write_digits(output: Path) -> list[Path]:
    """Write the 1,797 digits as ImageDirectories of PNG files: training, validation and held out."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.images))
    ends = np.cumsum([round(share * len(order)) for share in FRACTIONS.values()])[:-1]
    categories = [NAMES[digit] for digit in np.unique(digits.target)]
    directories = []
    for purpose, indices in zip(FRACTIONS, np.split(order, ends), strict=True):
        directories.append(output / purpose)
        images = _as_png(digits.images[indices], digits.target[indices])
        write_image_directory(directories[-1], images, categories, FLAG)
    return directories


def _as_png(images: np.ndarray, targets: np.ndarray) -> Iterator[tuple[str, bytes, str]]:
    for index, (pixels, target) in enumerate(zip(images, targets, strict=True)):
        grey = Image.fromarray((pixels * (255 / 16)).astype(np.uint8))  # 8 x 8, 0 to 16
        buffer = io.BytesIO()
        grey.resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC).save(buffer, "PNG")
        yield f"{target}_{index}.png", buffer.getvalue(), NAMES[target]
