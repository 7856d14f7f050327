"""Real data for trying the whole pipeline without a download: scikit-learn's handwritten digits."""

from pathlib import Path

import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

from train_pytorch_model.formats.image_directory import (
    IMAGE_FOLDER,
    image_row,
    writing_image_directory,
)
from train_pytorch_model.formats.schema import image_schema

IMAGE_SIDE = 32  # px; the 8 x 8 scans are enlarged to it
FRACTIONS = {"training": 0.7, "validation": 0.15, "held_out": 0.15}
SEED = 1
# As words: the designer's Score Image Model turns digits into numbers, and training warns about
# such names.
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
OUTPUT = "output"


def write_digits(output: Path) -> list[Path]:
    """Write the 1,797 digits as ImageDirectories of PNG files: training, validation, held out."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.images))
    ends = np.cumsum([round(fraction * len(order)) for fraction in FRACTIONS.values()])[:-1]
    categories = [NAMES[digit] for digit in np.unique(digits.target)]
    directories = []
    for purpose, indices in zip(FRACTIONS, np.split(order, ends), strict=True):
        directories.append(output / purpose)
        with writing_image_directory(directories[-1], image_schema(categories), OUTPUT) as writer:
            for index, digit in enumerate(indices):
                number = digits.target[digit]
                row = image_row(f"{IMAGE_FOLDER}/{number}_{index}.png", index, NAMES[number])
                _enlarge(digits.images[digit]).save(writer.path_for(row), "PNG")
                writer.add(row)
    return directories


def _enlarge(scan: np.ndarray) -> Image.Image:
    """Return a scan (8, 8), 0 to 16, as a grey image of `IMAGE_SIDE`."""
    levels = (scan * (255 / 16)).astype(np.uint8)
    return Image.fromarray(levels).resize((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.BICUBIC)
