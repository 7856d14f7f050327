"""What a model answers, by the probabilities of its categories. Imports no torch."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

SEPARATOR = "; "  # of the categories of an answer, as text


class Answers(ABC):
    """Abstract. From probabilities to answers."""

    is_multi_label: ClassVar[bool]  # whether an answer is a list of any number of categories
    measure: ClassVar[str]  # what the fraction of images answered right is called in a sentence

    @abstractmethod
    def marks(self, probabilities: np.ndarray) -> np.ndarray:
        """Return which categories are answered, (B, C), bool, by probabilities (B, C)."""

    def lists(self, probabilities: np.ndarray, categories: tuple[str, ...]) -> list[list[str]]:
        """Return the categories that are answered for each of B images, by class index."""
        return [
            [categories[index] for index in np.flatnonzero(row)]
            for row in self.marks(probabilities)
        ]

    @abstractmethod
    def labels(
        self, probabilities: np.ndarray, categories: tuple[str, ...]
    ) -> Sequence[str | list[str]]:
        """Return the answer for each of B images: a category, or a list of any number."""

    def texts(self, probabilities: np.ndarray, categories: tuple[str, ...]) -> list[str]:
        """Return the answer for each of B images as text; empty for none of the categories."""
        return [SEPARATOR.join(names) for names in self.lists(probabilities, categories)]

    def entries(self) -> Mapping[str, Any]:
        """Return what a file of the model says of how it answers, as plain values."""
        return {}

    def metadata(self) -> Mapping[str, str]:
        """Return what an exported file says of how it answers, name → text."""
        return {}


@dataclass(frozen=True)
class OneCategory(Answers):
    """The most probable category; of equal ones, the first."""

    is_multi_label = False
    measure = "accuracy"

    def marks(self, probabilities: np.ndarray) -> np.ndarray:
        marks = np.zeros(probabilities.shape, dtype=bool)
        marks[np.arange(len(probabilities)), probabilities.argmax(axis=1)] = True
        return marks

    def labels(
        self, probabilities: np.ndarray, categories: tuple[str, ...]
    ) -> Sequence[str | list[str]]:
        return [name for (name,) in self.lists(probabilities, categories)]


@dataclass(frozen=True)
class AnyCategories(Answers):
    """All categories that are at least as probable as their thresholds; there may be none."""

    is_multi_label = True
    measure = "exact match"

    thresholds: tuple[float, ...]  # by class index

    def marks(self, probabilities: np.ndarray) -> np.ndarray:
        marks: np.ndarray = probabilities >= np.asarray(self.thresholds)
        return marks

    def labels(
        self, probabilities: np.ndarray, categories: tuple[str, ...]
    ) -> Sequence[str | list[str]]:
        return self.lists(probabilities, categories)

    def entries(self) -> Mapping[str, Any]:
        return {"thresholds": list(self.thresholds)}

    def metadata(self) -> Mapping[str, str]:
        return {"task": "multi-label", "thresholds": json.dumps(self.thresholds)}


def answers_by(thresholds: tuple[float, ...] | None) -> Answers:
    """Return how a model with these thresholds answers; without any, with one category."""
    return OneCategory() if thresholds is None else AnyCategories(thresholds)
