"""The rows of an evaluation's tables."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes, PerClass
from train_pytorch_model.evaluation.multi_label import MultiLabelOutcomes
from train_pytorch_model.formats.image_directory import ImageDirectory


@dataclass(frozen=True)
class CategoryRow:
    """A row of per_class.csv; None where a number is undefined."""

    category: str
    precision: float | None
    recall: float | None
    f1: float | None
    support: int
    predicted: int


@dataclass(frozen=True)
class ConfusedRow:
    """Images of one category that were predicted as another."""

    category: str
    predicted: str
    images: int
    share: float  # fraction of the images of the category


@dataclass(frozen=True)
class Prediction:
    """The prediction for an image; the wrong ones are the rows of mistakes.csv."""

    file_name: str
    category: str
    predicted: str
    confidence: float  # probability of the predicted category
    category_probability: float  # probability of the true category
    original: str = ""  # the file's name before it was copied; empty if unknown


@dataclass(frozen=True)
class EvaluatedImages:
    """N images of a dataset, and the outcomes of their predictions."""

    images: ImageDirectory  # of which these are some or all
    indices: np.ndarray  # (N,), int64: the indices of the N in the dataset
    outcomes: Outcomes | MultiLabelOutcomes

    def predictions(self, rows: np.ndarray) -> list[Prediction]:
        """Return the predictions at `rows` (K,), each from 0 to N - 1."""
        categories = self.images.categories
        outcomes = self.outcomes
        assert isinstance(outcomes, Outcomes)
        indices = self.indices[rows]
        originals = self.images.original_names(indices)
        return [
            Prediction(
                file_name=self.images.file_names[index],
                category=categories[outcomes.targets[row]],
                predicted=categories[outcomes.predicted[row]],
                confidence=float(outcomes.confidences[row]),
                category_probability=float(outcomes.target_probabilities[row]),
                original=original,
            )
            for row, index, original in zip(rows, indices.tolist(), originals, strict=True)
        ]


def category_rows(per_class: PerClass, categories: Sequence[str]) -> list[CategoryRow]:
    """Return the rows of per_class.csv, by class index."""
    columns = (
        per_class.precision.tolist(),
        per_class.recall.tolist(),
        per_class.f1.tolist(),
        per_class.support.tolist(),
        per_class.predicted.tolist(),
    )
    return [
        CategoryRow(
            category=name,
            precision=precision if predicted else None,
            recall=recall if support else None,
            f1=f1 if support or predicted else None,
            support=support,
            predicted=predicted,
        )
        for name, precision, recall, f1, support, predicted in zip(
            categories, *columns, strict=True
        )
    ]


def worst_first(evaluation: Evaluation, categories: Sequence[str]) -> list[CategoryRow]:
    """Return the categories by increasing F1, undefined F1 last.

    Among equals, categories with images come first.
    """

    def key(row: CategoryRow) -> tuple[float, bool]:
        f1 = math.inf if row.f1 is None else row.f1
        return f1, row.support == 0

    return sorted(category_rows(evaluation.per_class, categories), key=key)


def confused_rows(
    evaluation: Evaluation, categories: Sequence[str], limit: int
) -> list[ConfusedRow]:
    """Return the `limit` largest confusions, by decreasing number of images."""
    confusion = evaluation.confusion
    support = evaluation.per_class.support
    off_diagonal = np.flatnonzero(confusion.targets != confusion.predicted)
    by_images = np.argsort(-confusion.images[off_diagonal], kind="stable")
    cells = off_diagonal[by_images][:limit]
    columns = (
        confusion.targets[cells].tolist(),
        confusion.predicted[cells].tolist(),
        confusion.images[cells].tolist(),
    )
    return [
        ConfusedRow(
            category=categories[target],
            predicted=categories[predicted],
            images=images,
            share=images / int(support[target]),
        )
        for target, predicted, images in zip(*columns, strict=True)
    ]


def confusion_matrix(
    evaluation: Evaluation, categories: Sequence[str]
) -> Iterator[Iterable[object]]:
    """Yield the rows of confusion_matrix.csv one by one: it may be too large for the memory."""
    yield ["category", *categories]
    for name, row in zip(categories, evaluation.confusion.rows(), strict=True):
        yield [name, *row.tolist()]
