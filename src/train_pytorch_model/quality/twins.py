"""Pairs of images that look alike, within a data set or in two of them.

`twins.csv` lists them, so that validation does not measure what was memorized. What contradicts
itself comes first, then pairs of a training and a validation image, then those within one data set:

    port,file_name,category                     an image
    other_port,other_file_name,other_category   another that looks like it; of several copies, each
                                                is listed with the first one
    kind                                        identical (byte by byte), similar or mirrored
    distance                                    bits in which the hashes differ, of 128
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.spreadsheet_cells import shown_rows
from train_pytorch_model.formats.writing import table_of
from train_pytorch_model.quality.near_duplicates import Pairs, find_pairs, look_like_known

TWINS = "twins.csv"


@dataclass(frozen=True)
class TwinRow:
    """A row of twins.csv."""

    port: str
    file_name: str
    category: str
    other_port: str
    other_file_name: str
    other_category: str
    kind: str
    distance: int


def twins_table(rows: Iterable[TwinRow]) -> Iterator[list[object]]:
    """Yield the rows of a twins.csv, its header first."""
    return shown_rows(table_of(TwinRow, rows))


def find_twins(
    training: ImageDirectory,
    validation: ImageDirectory,
    identical: np.ndarray,
    hashes: np.ndarray,
    num_known: int = 0,
) -> tuple[list[TwinRow], np.ndarray]:
    """Return the rows of twins.csv, and which validation images look like a training image.

    The latter is (V,), bool. Pairs within the first `num_known` images are left out. Validation
    images are numbered on after the training images: in the
    `identical` pairs (P, 2) and in their perceptual `hashes` (N, 16), uint8.
    """
    is_new = identical[:, 1] >= num_known
    pairs = _with_identical(find_pairs(hashes, num_known), identical[is_new])
    class_indices = np.concatenate([training.class_indices, validation.class_indices])
    order = _order(pairs, class_indices, len(training))

    def cells_of(number: int) -> tuple[str, str, str]:
        """Return the port, file name and category of an image."""
        is_training = number < len(training)
        images = training if is_training else validation
        index = number if is_training else number - len(training)
        return images.port, images.file_names[index], images.category_of(index)

    kinds = np.select(
        [pairs.is_mirrored, pairs.distances < 0], ["mirrored", "identical"], "similar"
    )
    distances = np.maximum(pairs.distances, 0)
    rows = [
        TwinRow(*cells_of(one), *cells_of(other), kind, distance)
        for (one, other), kind, distance in zip(
            pairs.images[order].tolist(),
            kinds[order].tolist(),
            distances[order].tolist(),
            strict=True,
        )
    ]
    return rows, look_like_known(pairs, len(training), len(class_indices))


def _with_identical(similar: Pairs, identical: np.ndarray) -> Pairs:
    """Return the similar pairs and the identical ones, (P, 2), at a distance of -1.

    A pair that is both is identical.
    """
    images = np.concatenate([identical, similar.images])
    distances = np.concatenate([np.full(len(identical), -1), similar.distances])
    is_mirrored = np.concatenate([np.zeros(len(identical), bool), similar.is_mirrored])
    _, firsts = np.unique(images, axis=0, return_index=True)
    return Pairs(images[firsts], distances[firsts], is_mirrored[firsts])


def _order(pairs: Pairs, class_indices: np.ndarray, num_training: int) -> np.ndarray:
    """Return the order (P,) in which pairs are listed, of images with class indices (N,).

    Contradictions come first, then pairs of a training and a validation image, then near ones.
    """
    one, other = pairs.images.T
    contradicts = class_indices[one] != class_indices[other]
    is_shared = (one < num_training) & (other >= num_training)
    return np.lexsort([other, one, pairs.distances, ~is_shared, ~contradicts])  # the last is first
