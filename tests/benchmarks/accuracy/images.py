"""Real images for training and evaluation: your own class folders, or scikit-learn's digits."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.datasets.digits import write_digits
from train_pytorch_model.formats.image_directory import open_image_directory


@dataclass(frozen=True)
class Images:
    """Training and held-out images."""

    name: str
    training: Path
    held_out: Path
    image_size: int | None
    """Side of the training images in px; None for the size of the files."""


def digits(root: Path) -> Images:
    """1,258 digits for training and 539 held out."""
    training, validation, held_out = write_digits(root)
    return Images("digits", training, _together(root / "judged", (validation, held_out)), None)


def folders(root: Path, image_size: int | None) -> Images:
    """`train/` and `val/`, each with a folder per category."""
    return Images(root.name, root / "train", root / "val", image_size)


def some_of(
    images: Images, root: Path, categories: slice, counts: Sequence[int] | None, seed: int
) -> Images:
    """Copy some categories, each with a number of random training images from `counts`, in turn.

    Without `counts`, all training images. Held-out images are all kept.
    """
    names = open_image_directory(images.held_out, "held out").categories
    for part, source in (("train", images.training), ("val", images.held_out)):
        directory = open_image_directory(source, part)
        random = np.random.default_rng(seed)
        for place, name in enumerate(names[categories]):
            index = directory.categories.index(name)
            found = random.permutation(np.flatnonzero(directory.class_indices == index))
            wanted = counts[place % len(counts)] if counts and part == "train" else len(found)
            folder = root / part / name
            folder.mkdir(parents=True)
            for image in found[:wanted]:
                shutil.copy(directory.path(int(image)), folder)
    return Images(images.name, root / "train", root / "val", images.image_size)


def _together(root: Path, sources: Sequence[Path]) -> Path:
    for source in sources:
        directory = open_image_directory(source, source.name)
        for index, class_index in enumerate(directory.class_indices):
            folder = root / directory.categories[class_index]
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(directory.path(index), folder)
    return root
