"""Sets of categories as they are read, and as text, where semicolons separate the categories."""

from collections.abc import Iterable, Sequence

import numpy as np

from train_pytorch_model.formats.label_kinds import SetsPerImage
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.image_classifier.answers import SEPARATOR

MAX_BYTES = 1 << 31  # of all sets


class LabelSets:
    """Numbers sets of class indices in the order in which they are added."""

    def __init__(self) -> None:
        self._numbers: dict[frozenset[int], int] = {}

    def number_of(self, class_indices: Iterable[int]) -> int:
        """Return the number of a set, which is added unless it is known."""
        return self._numbers.setdefault(frozenset(class_indices), len(self._numbers))

    def kind(self, num_categories: int) -> SetsPerImage:
        """Return the labels of images with these numbers. Raises `MalformedFileError`."""
        return SetsPerImage(self.matrix(num_categories))

    def matrix(self, num_categories: int) -> np.ndarray:
        """Return which categories each set has: (K, C), bool. Raises `MalformedFileError`."""
        if len(self._numbers) * num_categories > MAX_BYTES:
            raise MalformedFileError(
                f"{len(self._numbers):,} different lists of {num_categories:,} categories are more"
                " than fit into memory. Leave out rare categories."
            )
        matrix = np.zeros((len(self._numbers), num_categories), dtype=bool)
        for row, class_indices in enumerate(self._numbers):
            matrix[row, list(class_indices)] = True
        return matrix


def text_of(categories: Sequence[str]) -> str:
    """Return the categories of an image as one text; empty without any."""
    return SEPARATOR.join(categories)
