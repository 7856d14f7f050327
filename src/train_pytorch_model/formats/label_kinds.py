"""What the numbers of images stand for: a category each, or a set of any number of categories.

Both are one number an image, int32, so that images are selected, compared and hashed alike, and
equal sets have one number. A negative number is an image without a label.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

CATEGORY_COLUMN = "category"
CATEGORIES_COLUMN = "categories"  # of images with any number of them
CLASSIFICATION = "COCO_classification"
MULTI_LABEL = "multi_label_classification"  # of this package: the designer has no such type


class LabelKind(ABC):
    """Abstract. Numbers are (N,), int32, and there are C categories."""

    is_multi_label: ClassVar[bool]  # whether images have lists of any number of categories
    amount: ClassVar[str]  # how many categories an image has, as the end of a phrase
    column: ClassVar[str]  # of the labels in an image directory
    annotation_type: ClassVar[str]  # of that column

    @abstractmethod
    def counts(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:
        """Return the number of images of each category, (C,), int64."""

    @abstractmethod
    def targets(self, numbers: np.ndarray) -> np.ndarray:
        """Return class indices (N,), int64, or which categories images have, (N, C), float32."""

    @abstractmethod
    def marks(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:
        """Return which categories each image has, (N, C), bool."""

    @abstractmethod
    def has(self, numbers: np.ndarray, class_index: int) -> np.ndarray:
        """Return whether each image has a category, (N,), bool."""

    @abstractmethod
    def members(self, number: int) -> Sequence[int]:
        """Return the class indices of an image."""

    @abstractmethod
    def members_with(self, number: int, class_index: int) -> Sequence[int]:
        """Return the class indices of an image if its label were wrong about a category."""

    @abstractmethod
    def label(self, names: Sequence[str]) -> str | list[str]:
        """Return the label of an image with these categories, as a row of a list has it."""

    @abstractmethod
    def renumbered(
        self, numbers: np.ndarray, new_indices: np.ndarray, num_categories: int
    ) -> "tuple[LabelKind, np.ndarray]":
        """Return the same labels with other class indices: (C,), int32, negative if it is gone."""

    @abstractmethod
    def are_known(self, numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Return whether images have a label, all of whose categories are `known` (C,): (N,), bool.

        An empty list has a label, too.
        """

    @abstractmethod
    def as_sets(self, num_categories: int) -> "SetsPerImage":
        """Return the same labels, of the same numbers, as lists."""

    def unlearnable(self, counts: np.ndarray) -> np.ndarray:  # noqa: ARG002
        """Return the class indices that training cannot do without, and has no images of.

        `counts` are the images of each category, (C,).
        """
        return np.empty(0, dtype=np.int64)

    def content(self) -> bytes:
        """Return what, besides the numbers, the labels depend on."""
        return b""


@dataclass(frozen=True)
class OnePerImage(LabelKind):
    """The number of an image is its class index."""

    is_multi_label = False
    amount = ""
    column = CATEGORY_COLUMN
    annotation_type = CLASSIFICATION

    def counts(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:
        return np.bincount(numbers, minlength=num_categories)

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.astype(np.int64)

    def marks(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:
        marks: np.ndarray = numbers[:, None] == np.arange(num_categories)
        return marks

    def has(self, numbers: np.ndarray, class_index: int) -> np.ndarray:
        has: np.ndarray = numbers == class_index
        return has

    def members(self, number: int) -> Sequence[int]:
        return () if number < 0 else (number,)

    def members_with(self, number: int, class_index: int) -> Sequence[int]:  # noqa: ARG002
        return (class_index,)

    def label(self, names: Sequence[str]) -> str | list[str]:
        return names[0]

    def renumbered(
        self,
        numbers: np.ndarray,
        new_indices: np.ndarray,
        num_categories: int,  # noqa: ARG002, of sets
    ) -> tuple[LabelKind, np.ndarray]:
        return self, new_indices[numbers]

    def are_known(self, numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
        are_known: np.ndarray = np.append(known, False)[numbers]  # the last for those without
        return are_known

    def as_sets(self, num_categories: int) -> "SetsPerImage":
        return SetsPerImage(np.eye(num_categories, dtype=bool))


@dataclass(frozen=True, eq=False)
class SetsPerImage(LabelKind):
    """The number of an image is that of its set of categories."""

    sets: np.ndarray  # (K, C), bool: which categories each has

    is_multi_label = True
    amount = ", any number each"
    column = CATEGORIES_COLUMN
    annotation_type = MULTI_LABEL

    def counts(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:  # noqa: ARG002
        images = np.bincount(numbers, minlength=len(self.sets))
        counts: np.ndarray = images @ self.sets.astype(np.int64)
        return counts

    def targets(self, numbers: np.ndarray) -> np.ndarray:
        targets: np.ndarray = self.sets[numbers].astype(np.float32)
        return targets

    def marks(self, numbers: np.ndarray, num_categories: int) -> np.ndarray:  # noqa: ARG002
        marks: np.ndarray = self.sets[numbers]
        return marks

    def has(self, numbers: np.ndarray, class_index: int) -> np.ndarray:
        has: np.ndarray = self.sets[numbers, class_index]
        return has

    def members(self, number: int) -> Sequence[int]:
        members: list[int] = np.flatnonzero(self.sets[number]).tolist()
        return members

    def members_with(self, number: int, class_index: int) -> Sequence[int]:
        return sorted({*self.members(number)} ^ {class_index})

    def label(self, names: Sequence[str]) -> str | list[str]:
        return list(names)

    def renumbered(
        self, numbers: np.ndarray, new_indices: np.ndarray, num_categories: int
    ) -> tuple[LabelKind, np.ndarray]:
        is_left = new_indices >= 0
        sets = np.zeros((len(self.sets), num_categories), dtype=bool)
        sets[:, new_indices[is_left]] = self.sets[:, is_left]
        return SetsPerImage(sets), numbers

    def are_known(self, numbers: np.ndarray, known: np.ndarray) -> np.ndarray:
        has_only_known = ~self.sets[:, ~known].any(axis=1)
        are_known: np.ndarray = np.append(has_only_known, False)[numbers]
        return are_known

    def as_sets(self, num_categories: int) -> "SetsPerImage":  # noqa: ARG002
        return self

    def unlearnable(self, counts: np.ndarray) -> np.ndarray:
        # Every image says that it lacks such a category: the model would learn never to answer it.
        return np.flatnonzero(counts == 0)

    def content(self) -> bytes:
        return self.sets.tobytes()


ONE_PER_IMAGE = OnePerImage()
KIND_OF: dict[str, Any] = {kind.annotation_type: kind for kind in (OnePerImage, SetsPerImage)}
"""Annotation type → kind."""
