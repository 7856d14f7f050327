"""One folder of images, as people have it → its training, validation and test images, as lists.

    photographs/daisy/1.jpg                     one folder per category, or an ImageDirectory
    photographs/1.jpg, photographs/labels.csv   a table of the categories, see `label_table`
    photographs/train/…, val/…, test/…          parts of any of these forms; a missing one is split off

Nothing is copied: the parts are rows of the folder's listing, the same for the same seed.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from train_pytorch_model.datasets.splitting import group_images, split
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.label_table import open_labelled, table_in
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.writing import write_csv
from train_pytorch_model.inputs.opening import DATASET, TRAINING_DATASET, VALIDATION_DATASET
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
    " called train,"
    " val and test."
)


@dataclass(frozen=True)
class Parts:
    """The images of a folder, in three parts without an image in common."""

    training: ImageDirectory
    validation: ImageDirectory
    test: ImageDirectory


def open_parts(folder: Path, seed: int) -> Parts:
    """Open, or split 80/10/10 or 60/20/20.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    given = {
        part: open_labelled(path, DATASET, HINT) for part, path in _part_folders(folder).items()
    }
    training = given.get("training") or open_labelled(folder, DATASET, HINT)
    training.require_labels(HINT)
    missing = [part for part in ("test", "validation") if part not in given]
    counts = training.class_counts()
    fraction = FRACTION if counts[counts > 0].min() * FRACTION >= MIN_IMAGES else FRACTION_OF_FEW
    fractions = [1 - fraction * len(missing), *[fraction] * len(missing)]
    if missing:
        # Twins stay together; of more images, looking for them would delay every start of a run too
        # much.
        groups = group_images(training, by_twins=len(training) <= MAX_COMPARED).labels
        training, *rest = split(training, fractions, seed, stratified=True, groups=groups)
        # What the folder holds besides images is said once, of the training images.
        given |= {
            part: replace(images, ignored={}) for part, images in zip(missing, rest, strict=True)
        }
    return Parts(
        replace(training, port=TRAINING_DATASET),
        replace(given["validation"], port=VALIDATION_DATASET),
        replace(given["test"], port=DATASET),
    )


def write_split(path: Path, parts: Parts) -> None:
    """Write a CSV file with a row per image: its file relative to the folder, its category and its
    part.
    """
    folder = os.path.commonpath([images.root for images in vars(parts).values()])

    def rows() -> Iterator[tuple[str, str, str]]:  # one at a time: there may be millions
        yield "file_name", "category", "part"
        for part, images in vars(parts).items():
            root = (
                ""
                if images.root == Path(folder)
                else f"{images.root.relative_to(folder).as_posix()}/"
            )
            for name, index in zip(images.file_names, images.class_indices.tolist(), strict=True):
                yield root + name, images.categories[index], part

    write_csv(path, rows())


def _part_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of the parts by part, if training and another one are there; else none."""
    if (
        not os.access(f"{folder}/", os.R_OK | os.X_OK)
        or (folder / META).exists()
        or table_in(folder)
    ):
        return {}  # opening the folder says what is wrong with it
    inner = {path.name.lower(): path for path in folder.iterdir() if path.is_dir()}
    found = {
        part: inner[name] for part, names in PART_NAMES.items() for name in names if name in inner
    }
    return found if "training" in found and len(found) > 1 else {}
