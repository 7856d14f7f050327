"""One folder of images, as people have it → its training, validation and test images, as lists.

    photographs/daisy/1.jpg                     one folder per category, or an ImageDirectory
    photographs/1.jpg, photographs/labels.csv   a table of the categories, see `label_table`
    photographs/train/…, val/…, test/…          parts of any of these forms
    photographs/labels.csv with train/1.jpg     a table for parts in folders, or with a column split
    photographs/train.csv, photographs/train/…  a table for each part

A part that is missing is split off from training. Nothing is copied: the parts are rows of the
folder's listing, the same for the same seed.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import assignment, counted, parameter, worded
from train_pytorch_model.datasets.correcting import Corrections, correct, join_training
from train_pytorch_model.datasets.grouping import group_images
from train_pytorch_model.datasets.kept_split import split_as_before
from train_pytorch_model.datasets.unused_folders import count_images, describe_unused
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import FIT_HINT, ImageDirectory
from train_pytorch_model.formats.labelled_folder import has_labels, open_labelled
from train_pytorch_model.formats.labelled_rows import SHOWN, some
from train_pytorch_model.formats.listing import Packer, is_hidden
from train_pytorch_model.formats.part_names import (
    PARTS,
    TEST,
    TRAINING,
    VALIDATION,
    is_container,
    parts_of,
)
from train_pytorch_model.formats.plain_folders import folder_of_categories
from train_pytorch_model.formats.reading import META
from train_pytorch_model.formats.table_files import part_tables_in, spreadsheets_in, tables_in
from train_pytorch_model.formats.table_splits import NO_PART
from train_pytorch_model.inputs.damaged_categories import without_damaged_categories
from train_pytorch_model.inputs.headers import read_headers
from train_pytorch_model.inputs.opening import TRAINING_DATASET, VALIDATION_DATASET
from train_pytorch_model.inputs.scoring import DATASET
from train_pytorch_model.inputs.unreadable_images import (
    UnreadableImage,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger
from train_pytorch_model.quality.identical_files import MAX_COMPARED

NO_EARLIER: Mapping[str, str] = {}  # split
FRACTION = 0.1  # of the images, for each of validation and test …
FRACTION_OF_FEW = 0.2  # … and of a folder in which that is less than
MIN_IMAGES = 5  # of a category


@dataclass(frozen=True)
class Parts:
    """The images of a folder, in three parts without an image in common."""

    training: ImageDirectory
    validation: ImageDirectory
    test: ImageDirectory

    def by_name(self) -> dict[str, ImageDirectory]:
        """Return the images of each part, by its name."""
        return {TRAINING: self.training, VALIDATION: self.validation, TEST: self.test}


def open_parts(
    folder: Path,
    seed: int,
    columns: TableOptions = BY_DEFAULT,
    group_by: str = "",
    earlier: Mapping[str, str] = NO_EARLIER,
    corrections: Corrections | None = None,
    left_out: list[UnreadableImage] | None = None,
) -> Parts:
    """Open the parts; split off 80/10/10 or 60/20/20 what is missing.

    Images that cannot be read are not split, but added to the list `left_out`.

    What is split off keeps the groups of `group_images`. Images that an `earlier` split had, by
    file name, stay in its parts. They are split by the categories that they had before any
    `corrections`, so that these move no image. Raises `InvalidDatasetError`,
    `NotLabeledDatasetError`, `ParameterError`.
    """
    inner = _seen_through(folder)
    own_parts = _open_own_parts(inner, columns)
    parts = {part: without_damaged_categories(images) for part, images in own_parts.items()}
    if corrections and not parts[TRAINING].categories:  # the table is all that labels them
        parts = correct(folder, {TRAINING: parts[TRAINING]}, corrections)
        corrections = None
    parts[TRAINING].require_labels(FIT_HINT)
    for part in _unlabelled(parts):
        logger.warning(_about_unlabelled(parts.pop(part), part))
    if any(images.is_multi_label for images in parts.values()):
        # A table of which no row happens to have two categories has lists of one.
        parts = {
            part: images.as_multi_label() if images.origin else images
            for part, images in parts.items()
        }
    missing = [part for part in (TEST, VALIDATION) if part not in parts]
    if missing:
        parts[TRAINING], unreadable = _readable(parts[TRAINING])
        if left_out is not None:
            left_out += unreadable
        parts |= _split_off(parts[TRAINING], missing, seed, group_by, earlier)
    elif group_by:
        logger.warning(f"{parameter('group_by')} changes nothing: {folder} has all parts already.")
    if corrections:
        place = partial(_place_by_groups, group_by) if missing else join_training
        parts = correct(folder, parts, corrections, place)
    return Parts(
        replace(parts[TRAINING], port=TRAINING_DATASET),
        replace(parts[VALIDATION], port=VALIDATION_DATASET),
        replace(parts[TEST], port=DATASET),
    )


def _readable(images: ImageDirectory) -> tuple[ImageDirectory, Sequence[UnreadableImage]]:
    """Return the images whose headers can be read, and the others.

    Raises `InvalidDatasetError` for too many of these.
    """
    return without_unreadable_images(images, read_headers(images).unreadable)


def open_unsplit(folder: Path, columns: TableOptions = BY_DEFAULT) -> dict[str, ImageDirectory]:
    """Return the images of the parts that a folder has already: of training, if it has none.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    return _open_own_parts(_seen_through(folder), columns)


def _open_own_parts(folder: Path, columns: TableOptions) -> dict[str, ImageDirectory]:
    """Return the parts that the folder has already, by part: training, and maybe others.

    Raises `InvalidDatasetError`, `NotLabeledDatasetError`.
    """
    folders = _part_folders(folder)
    tables = part_tables_in(folder) if os.path.isdir(folder) else {}
    if folders and not (tables.get(TRAINING) or has_labels(folders[TRAINING])):
        whole = _open_whole(folder, folders, columns)
        if whole:
            return whole
    if TRAINING in tables and (folders or len(tables) > 1):
        return _open_with_tables(folder, folders, tables, columns)
    if folders:
        parts = _open_folders(folders, columns)
        unused = describe_unused(folder, folders)
        if unused:
            training = parts[TRAINING]
            parts[TRAINING] = replace(training, notes=(*training.notes, unused))
        return parts
    labelled = open_labelled(folder, DATASET, columns)
    _check_no_spreadsheet(folder, labelled.images)
    if labelled.parts is None:
        return {TRAINING: labelled.images}
    return _by_part(labelled.images, labelled.parts, "the table")


def _check_no_spreadsheet(folder: Path, images: ImageDirectory) -> None:
    """Raise `InvalidDatasetError` if only a spreadsheet, which is not read, can have categories."""
    names = spreadsheets_in(folder)
    if names and all(map(is_container, images.categories)):
        raise InvalidDatasetError(
            images.title,
            f"its folders are no categories, and {some(names)} is a spreadsheet, which is not"
            " read.",
            "Save it as CSV in the same folder.",
        )


def _open_folders(folders: Mapping[str, Path], columns: TableOptions) -> dict[str, ImageDirectory]:
    """Return the images of each part's folder, training first, whose categories the others have.

    Folders without an image are left out with a word.
    """
    training = open_labelled(folders[TRAINING], DATASET, columns).images
    parts = {TRAINING: training}
    for part, path in folders.items():
        if part == TRAINING:
            continue
        if count_images(path.parent, path.name):
            known = training.categories
            parts[part] = open_labelled(path, DATASET, columns, known=known).images
        else:
            logger.warning(f"{path}: it has no image. {_held_out(part)}")
    return parts


def _open_whole(
    folder: Path, folders: Mapping[str, Path], columns: TableOptions
) -> dict[str, ImageDirectory]:
    """Return the images of parts in folders that one table beside them labels; none without it."""
    if not tables_in(folder):
        return {}
    labelled = open_labelled(folder, DATASET, columns)
    images = labelled.images
    part_of = {path.name: PARTS.index(part) for part, path in folders.items()}
    parts = labelled.parts
    if parts is None:
        first = (name.partition("/")[0] for name in images.file_names)
        parts = np.asarray([part_of.get(name, NO_PART) for name in first], dtype=np.int8)
    return _by_part(images, parts, "its folder")


def _open_with_tables(
    folder: Path, folders: Mapping[str, Path], tables: Mapping[str, Path], columns: TableOptions
) -> dict[str, ImageDirectory]:
    """Return the parts whose tables are beside their folders, or beside one folder for all."""
    parts = {}
    for part in {**folders, **tables}:
        inner = folders.get(part, folder)
        labelled = open_labelled(inner, DATASET, columns, tables.get(part))
        parts[part] = _seen_from(folder, labelled.images)
    return parts


def _seen_from(folder: Path, images: ImageDirectory) -> ImageDirectory:
    """Return the same images of a folder inside another one, named as from there."""
    if not images.categories or images.root == folder or (images.root / META).exists():
        return images
    prefix = images.root.relative_to(folder).as_posix()
    names = Packer(f"{prefix}/{name}" for name in images.file_names).finish()
    return replace(images, root=folder, file_names=names)


def _unlabelled(parts: Mapping[str, ImageDirectory]) -> list[str]:
    """Return the parts that cannot measure a model: their images have no categories."""
    return [part for part, images in parts.items() if not images.categories]


def _about_unlabelled(images: ImageDirectory, part: str) -> str:
    """Return that a part is not used, and how its images are predicted."""
    number = counted(len(images), "image", "images")
    score = worded("`score` predicts them with the model.", "`predict` of the model predicts them.")
    return (
        f"{images.root}: {number} without a category, and not in folders of categories, so they are"
        f" left out. {score} {_held_out(part)}"
    )


def _held_out(part: str) -> str:
    return f"Images of the training folder are held out for {part} instead."


def _by_part(images: ImageDirectory, parts: np.ndarray, teller: str) -> dict[str, ImageDirectory]:
    """Return the images of each part that has some. Raises `InvalidDatasetError`."""
    without = np.flatnonzero(parts == NO_PART)
    if len(without):
        number = counted(len(without), "image is", "images are")
        first = some([images.file_names[index] for index in without[:SHOWN].tolist()])
        note = f"{number} for no part, by {teller}, and not used ({first})."
        images = replace(images, notes=(*images.notes, note))
    found = {
        part: images.select(np.flatnonzero(parts == index)) for index, part in enumerate(PARTS)
    }
    if not len(found[TRAINING]):
        hint = f"Say {TRAINING!r} of some images there."
        raise InvalidDatasetError(images.title, f"{teller} has no image for training.", hint)
    # What the folder holds besides images is said once, of the training images.
    return {
        part: selected if part == TRAINING else replace(selected, ignored={}, notes=())
        for part, selected in found.items()
        if len(selected)
    }


def _split_off(
    training: ImageDirectory,
    missing: Sequence[str],
    seed: int,
    group_by: str,
    earlier: Mapping[str, str],
) -> dict[str, ImageDirectory]:
    """Return the missing parts, and the rest of the training images, by part."""
    counts = training.class_counts()
    is_few = counts[counts > 0].min() * FRACTION < MIN_IMAGES
    fraction = FRACTION_OF_FEW if is_few else FRACTION
    fractions = [1 - fraction * len(missing), *[fraction] * len(missing)]
    # Twins stay together; of more images, looking for them would delay every start of a run.
    groups = group_images(training, group_by, by_twins=len(training) <= MAX_COMPARED)
    if 2 * groups.num_twins > len(training):
        logger.warning(_about_twins(groups.num_twins, len(training)))
    of_parts = split_as_before(
        training, fractions, seed, groups.labels, [TRAINING, *missing], earlier
    )
    rest, *split_off = of_parts
    _check_enough(training, rest)
    # What the folder holds besides images is said once, of the training images.
    parts = {
        part: replace(images, ignored={}, notes=())
        for part, images in zip(missing, split_off, strict=True)
    }
    return {TRAINING: rest, **parts}


def _place_by_groups(
    group_by: str, joining: ImageDirectory, parts: Mapping[str, ImageDirectory]
) -> Sequence[str]:
    """Return the part of each image that joins: where images of its group are held out, if any."""
    together = [*parts.values(), joining]
    names = Packer(name for images in together for name in images.file_names).finish()
    rows = np.concatenate([images.rows for images in together])
    class_indices = np.concatenate([images.class_indices for images in together])
    whole = replace(joining, file_names=names, class_indices=class_indices, rows=rows)
    groups = group_images(whole, group_by, by_twins=len(whole) <= MAX_COMPARED).labels
    num_known = len(whole) - len(joining)
    known = [name for name, images in parts.items() for _ in range(len(images))]
    held_out = {
        group: part
        for group, part in zip(groups[:num_known].tolist(), known, strict=True)
        if part != TRAINING
    }
    return [held_out.get(group, TRAINING) for group in groups[num_known:].tolist()]


def _check_enough(images: ImageDirectory, training: ImageDirectory) -> None:
    """Raise `InvalidDatasetError` if so few images were split that training has one category."""
    num_categories = np.count_nonzero(images.class_counts())
    if num_categories < 2 or np.count_nonzero(training.class_counts()) >= 2:
        return
    number = counted(len(images), "image", "images")
    raise InvalidDatasetError(
        images.title,
        f"its {number} in {num_categories} categories are too few to split: training would have"
        " one category.",
        "Add images: each part, training, validation and test, needs some of each category.",
    )


def _about_twins(num_twins: int, num_images: int) -> str:
    return (
        f"{num_twins:,} of {num_images:,} images look like another one and stay with it in one"
        f" part, so the parts may not have the usual sizes. {assignment('group_by', 'none')} splits"
        " them although they look alike."
    )


def _seen_through(folder: Path) -> Path:
    """Return the folder that is meant: the one in it if that is all it holds."""
    inner = folder / folder_of_categories(folder)
    if inner != folder:
        logger.info(f"{folder}: the images in {inner} are used")
    return inner


def _part_folders(folder: Path) -> dict[str, Path]:
    """Return the folders of the parts, if training is there and another one, or its table."""
    names = _names_of_folders(folder)
    found = {part: folder / name for name, part in parts_of(names).items()}
    if TRAINING not in found:
        return {}
    if len(found) == 1 and TRAINING not in part_tables_in(folder):
        return {}
    return {part: found[part] for part in PARTS if part in found}


def _names_of_folders(folder: Path) -> list[str]:
    """Return the visible folders in a folder; none in an image directory, or if it has none.

    If it cannot be listed, opening it says why.
    """
    is_readable = os.path.isdir(folder) and os.access(f"{folder}/", os.R_OK | os.X_OK)
    if not is_readable or (folder / META).exists():
        return []
    return sorted(
        path.name for path in folder.iterdir() if path.is_dir() and not is_hidden(path.name)
    )
