"""One folder of images, as people have it → its training, validation and test images, as lists.

    photographs/daisy/1.jpg                     one folder per category, or an ImageDirectory
    photographs/1.jpg, photographs/labels.csv   a table of the categories, see `label_table`
    photographs/train/…, val/…, test/…          parts of any of these forms; a missing one is split off

Nothing is copied: the parts are rows of the folder's listing, the same for the same seed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from train_pytorch_model.config.wording import counted, worded
from train_pytorch_model.datasets.grouping import group_images
from train_pytorch_model.datasets.splitting import split
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.label_table import open_labelled, table_in
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.inputs.opening import TRAINING_DATASET, VALIDATION_DATASET
from train_pytorch_model.inputs.scoring import DATASET
from train_pytorch_model.machine.console import logger
from train_pytorch_model.quality.identical_files import MAX_COMPARED

SPLIT = "split.csv"
PART_NAMES = {
    "training": ("train", "training"),
    "validation": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing", "holdout", "held-out"),
}
FRACTION = 0.1  # of the images, for each of validation and test …
FRACTION_OF_FEW = 0.2  # … and of a folder in which that is less than
MIN_IMAGES = 5  # of a category
HINT = (
    "Name a folder with one folder per category in it, with a labels.csv, or with such folders"
    " called train, val and test."
)


@dataclass(frozen=True)
class Parts:
    """The images of a folder, in three parts without an image in common."""

    training: ImageDirectory
    validation: ImageDirectory
    test: ImageDirectory


def open_parts(folder: Path, seed: int) -> Parts:
    """Open the parts; split off 80/10/10 or 60/20/20 what is missing.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    folders = _part_folders(folder)
    parts = {part: open_labelled(path, DATASET, HINT) for part, path in folders.items()}
    if "training" not in parts:
        parts["training"] = open_labelled(folder, DATASET, HINT)
    parts["training"].require_labels(HINT)
    for part in _unlabelled(parts):
        logger.warning(_about_unlabelled(parts.pop(part), part))
    missing = [part for part in ("test", "validation") if part not in parts]
    if missing:
        parts |= _split_off(parts["training"], missing, seed)
    return Parts(
        replace(parts["training"], port=TRAINING_DATASET),
        replace(parts["validation"], port=VALIDATION_DATASET),
        replace(parts["test"], port=DATASET),
    )


def _unlabelled(parts: Mapping[str, ImageDirectory]) -> list[str]:
    """Return the parts that cannot measure a model: their images have no categories."""
    return [part for part, images in parts.items() if not images.categories]


def _about_unlabelled(images: ImageDirectory, part: str) -> str:
    """Return that a part is not used, and how its images are predicted."""
    number = counted(len(images), "image", "images")
    score = worded("`score` predicts them with the model.", "`predict` of the model predicts them.")
    return (
        f"{images.root}: {number} without a category, and not in folders of categories, so they are"
        f" left out; images of the training folder are held out for {part} instead. {score}"
    )


def _split_off(
    training: ImageDirectory, missing: Sequence[str], seed: int
) -> dict[str, ImageDirectory]:
    """Return the missing parts, and the rest of the training images, by part."""
    counts = training.class_counts()
    is_few = counts[counts > 0].min() * FRACTION < MIN_IMAGES
    fraction = FRACTION_OF_FEW if is_few else FRACTION
    fractions = [1 - fraction * len(missing), *[fraction] * len(missing)]
    # Twins stay together; of more images, looking for them would delay every start of a run.
    groups = group_images(training, by_twins=len(training) <= MAX_COMPARED).labels
    rest, *split_off = split(training, fractions, seed, stratified=True, groups=groups)
    # What the folder holds besides images is said once, of the training images.
    parts = {
        part: replace(images, ignored={}, notes=())
        for part, images in zip(missing, split_off, strict=True)
    }
    return {"training": rest, **parts}


def write_split(path: Path, parts: Parts) -> None:
    """Write a CSV file with a row per image: its file in the folder, its category and its part."""
    folder = Path(os.path.commonpath([images.root for images in vars(parts).values()]))

    def rows() -> Iterator[tuple[str, str, str]]:  # one at a time: there may be millions
        yield "file_name", "category", "part"
        for part, images in vars(parts).items():
            is_inside = images.root != folder
            prefix = f"{images.root.relative_to(folder).as_posix()}/" if is_inside else ""
            for name, index in zip(images.file_names, images.class_indices.tolist(), strict=True):
                yield prefix + name, images.categories[index], part

    write_csv(path, rows())


def _part_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of the parts by part, if training and another one are there; else none."""
    is_readable = os.access(f"{folder}/", os.R_OK | os.X_OK)
    if not is_readable or (folder / META).exists() or table_in(folder):
        return {}  # opening the folder says what is wrong with it
    inner = {path.name.lower(): path for path in folder.iterdir() if path.is_dir()}
    folders = {
        part: inner[name] for part, names in PART_NAMES.items() for name in names if name in inner
    }
    return folders if "training" in folders and len(folders) > 1 else {}
