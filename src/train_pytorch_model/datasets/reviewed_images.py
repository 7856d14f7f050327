"""All images of a folder, labelled or not, in any of the forms that `fit` takes."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from train_pytorch_model.config.table_options import BY_DEFAULT, TableOptions
from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.one_folder import open_unsplit
from train_pytorch_model.errors import InvalidDatasetError, NotLabeledDatasetError
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.listing import (
    UNLABELLED,
    comparable,
    natural_order,
    read_images_at_any_depth,
)
from train_pytorch_model.formats.reading import META, MalformedFileError
from train_pytorch_model.formats.table_files import is_table
from train_pytorch_model.inputs.scoring import DATASET
from train_pytorch_model.machine.console import logger


@dataclass(frozen=True)
class ReviewedImages:
    """N images, and the categories that they have been given."""

    images: ImageDirectory  # without categories; file names relative to the folder
    categories: tuple[str, ...]  # of the images and of the model
    class_indices: np.ndarray  # (N,), int64, of the rows of the images; `UNLABELLED` without


def open_reviewed(
    folder: Path,
    known: Collection[str],
    columns: TableOptions = BY_DEFAULT,
    others: Collection[str] = (),
) -> ReviewedImages:
    """Open all images of a folder, or of a table, with their categories, if they have any.

    If none of them is one of the `known` categories, they count as none. There are `others`, too.
    Raises `InvalidDatasetError`.
    """
    root = folder.parent if os.path.isfile(folder) and is_table(folder) else folder
    category_of = _categories_of(folder, root, known, columns)
    images = _images_of(root, category_of)
    names = dict.fromkeys(map(comparable, [*category_of.values(), *known, *others]))
    categories = tuple(sorted(names, key=natural_order))
    index_of = {name: index for index, name in enumerate(categories)}
    given = (category_of.get(name) for name in images.file_names)
    indices = [UNLABELLED if one is None else index_of[comparable(one)] for one in given]
    num_labelled = len(indices) - indices.count(UNLABELLED)
    logger.info(
        f"{folder}: {counted(len(images), 'image', 'images')}, {num_labelled:,} of them with a"
        " category"
    )
    return ReviewedImages(images, categories, np.array(indices, np.int64))


def _images_of(root: Path, category_of: Mapping[str, str]) -> ImageDirectory:
    """Return all images below a folder, without categories. Raises `InvalidDatasetError`."""
    if os.path.exists(root / META) or not os.path.isdir(root):
        images = open_image_directory(root, DATASET)
    else:
        try:
            images = images_of(read_images_at_any_depth(root), root, DATASET)
        except MalformedFileError as error:
            raise InvalidDatasetError(f'{DATASET} "{root}"', str(error)) from error
    without = np.full(len(images), UNLABELLED, np.int32)
    return replace(
        images,
        categories=(),
        class_indices=without,
        columns=("id",),
        rows=np.arange(len(images)),
        is_relabelled=bool(category_of),
        ignored={},
    )


def _categories_of(
    folder: Path, root: Path, known: Collection[str], columns: TableOptions
) -> dict[str, str]:
    """Return the category of each image that has one, by its name below `root`."""
    try:
        parts = open_unsplit(folder, columns)
    except (InvalidDatasetError, NotLabeledDatasetError) as error:
        if not os.path.isdir(root) or columns != BY_DEFAULT or os.path.exists(root / META):
            raise
        logger.info(f"No image of {folder} has a category: {error}")
        return {}
    category_of = {}
    for images in parts.values():
        if not images.categories:
            continue
        prefix = os.path.relpath(images.root, root).replace(os.sep, "/")
        start = "" if prefix == "." else f"{prefix}/"
        for name, index in zip(images.file_names, images.class_indices.tolist(), strict=True):
            category_of[start + name] = images.categories[index]
    knows_any = set(map(comparable, category_of.values())) & set(map(comparable, known))
    if category_of and not knows_any:
        logger.info(
            f"None of the categories of {folder} is one of the model's, so its images count as"
            " images without a category."
        )
        return {}
    return category_of
