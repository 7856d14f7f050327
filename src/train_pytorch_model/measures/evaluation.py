"""Evaluation metrics, computed from targets and probabilities without torch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from train_pytorch_model.measures.coverage import Coverage, coverage_of

TOP_K = 5
DEVIATIONS = 1.96  # standard deviations on either side of the mean hold 95 % of a normal distribution
NUM_BINS = 15  # as in Guo et al. 2017
# Probabilities are clamped to this in the loss, at 708 nats; smaller floats lose digits. A higher limit, such
# as scikit-learn's at 36 nats, would give another loss than that of the epochs, which comes from logits.
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Outcomes:
    """What is kept of N predictions: all metrics follow from it, so the N x C probabilities can be freed."""

    targets: np.ndarray
    """(N,), int64: the true categories, as class indices."""
    predicted: np.ndarray
    """(N,), int64: the most probable categories; of equal ones, the first."""
    confidences: np.ndarray
    """(N,), float64: the probabilities of the predicted categories."""
    target_probabilities: np.ndarray
    """(N,), float64: the probabilities of the true categories."""
    target_ranks: np.ndarray
    """(N,), int64: how many categories rank above the true one, ties by class index; 0 is a hit."""

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, indices: np.ndarray) -> "Outcomes":
        """The outcomes at `indices`, in that order."""
        return Outcomes(*(getattr(self, field.name)[indices] for field in fields(self)))


@dataclass(frozen=True)
class PerClass:
    """Metrics per category; 0 where undefined, as given by the masks."""

    precision: np.ndarray
    """(C,), float64: of the images predicted as this category, the fraction that belong to it."""
    recall: np.ndarray
    """(C,), float64: of the images of this category, the fraction predicted as it."""
    f1: np.ndarray
    """(C,), float64: harmonic mean of precision and recall."""
    support: np.ndarray
    """(C,), int64: images of this category."""
    predicted: np.ndarray
    """(C,), int64: images predicted as this category."""

    @property
    def has_precision(self) -> np.ndarray:
        """(C,), bool: at least one image was predicted as this category."""
        return self.predicted > 0

    @property
    def has_recall(self) -> np.ndarray:
        """(C,), bool: at least one image is of this category."""
        return self.support > 0

    @property
    def has_f1(self) -> np.ndarray:
        """(C,), bool: at least one image is of this category or was predicted as it."""
        mask: np.ndarray = self.has_precision | self.has_recall
        return mask


@dataclass(frozen=True)
class Averages:
    """Means of a `PerClass` over categories."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class CalibrationBin:
    """Confidence against accuracy of the images with a confidence in a bin; None if there are none."""

    lower: float
    """The lower edge, exclusive."""
    upper: float
    """The upper edge, inclusive."""
    images: int
    confidence: float | None
    """Mean confidence of the images."""
    accuracy: float | None
    """Fraction of the images that are predicted correctly."""


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy, in bins of equal width over (0, 1]."""

    bins: Sequence[CalibrationBin]
    error: float
    """Expected calibration error, from 0 to 1: the mean distance of accuracy from confidence over all images
    (Guo et al. 2017, On Calibration of Modern Neural Networks, equation 3)."""


@dataclass(frozen=True)
class Confusion:
    """The (C, C) confusion matrix of true by predicted categories, as its K nonzero cells, row by row.

    Stored densely, the matrix of 20,000 categories takes 3 GiB.
    """

    num_classes: int
    targets: np.ndarray
    """(K,), int64: the rows, ascending."""
    predicted: np.ndarray
    """(K,), int64: the columns, ascending within a row."""
    images: np.ndarray
    """(K,), int64: counts, at least 1."""

    def rows(self) -> Iterator[np.ndarray]:
        """The rows of the dense matrix, each (C,), int64."""
        starts = np.searchsorted(self.targets, np.arange(self.num_classes + 1))
        for start, end in pairwise(starts):
            row = np.zeros(self.num_classes, np.int64)
            row[self.predicted[start:end]] = self.images[start:end]
            yield row

    def largest_mistakes(self, limit: int) -> list[tuple[int, int, int]]:
        """(true, predicted, images) of at most `limit` cells off the diagonal, the most images first."""
        wrong = np.flatnonzero(self.targets != self.predicted)
        cells = wrong[np.argsort(-self.images[wrong], kind="stable")][:limit]
        columns = (values[cells].tolist() for values in (self.targets, self.predicted, self.images))
        return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class Evaluation:
    """The metrics of N images classified into C categories. Fractions are from 0 to 1."""

    images: int
    accuracy: float
    top5: float
    """Fraction of images whose category is among the five most probable; 1 with five categories or fewer."""
    loss: float
    """Mean cross-entropy in nats, of probabilities of at least `TINY`."""
    balanced_accuracy: float
    """Mean recall over the categories that have images."""
    mean_confidence: float
    """Mean probability of the predicted category."""
    macro: Averages
    """Unweighted mean over the categories that have images or were predicted."""
    weighted: Averages
    """Mean over the categories, weighted by their number of images."""
    per_class: PerClass
    confusion: Confusion
    calibration: Calibration
    coverage: Coverage
    mistakes: np.ndarray
    """(M,), int64: the indices, from 0 to N - 1, of all wrong predictions, the most confident first."""

    @property
    def correct(self) -> int:
        """The number of correctly classified images."""
        return self.images - len(self.mistakes)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy."""
        return confidence_interval(self.accuracy, self.images)


def confidence_interval(accuracy: float, images: int) -> tuple[float, float]:
    """The 95 % confidence interval of an accuracy measured on a number of images.

    It is Wilson's score interval (1927), which also holds for few images and for accuracies near 0 and 1.
    """
    weight = DEVIATIONS**2
    centre = (images * accuracy + weight / 2) / (images + weight)
    half = DEVIATIONS * math.sqrt(images * accuracy * (1 - accuracy) + weight / 4) / (images + weight)
    return max(0.0, centre - half), min(1.0, centre + half)


def accuracy_in_images(evaluation: Evaluation) -> str:
    """The number of correctly classified images, and the confidence interval of the accuracy, in words."""
    lowest, highest = evaluation.accuracy_interval
    interval = f"95% confidence interval {lowest:.1%} to {highest:.1%}"
    return f"{evaluation.correct:,} of {evaluation.images:,} images, {interval}"


def outcomes_of(targets: np.ndarray, probabilities: np.ndarray) -> Outcomes:
    """Reduce targets (N,), class indices, and probabilities (N, C), float64, finite, to outcomes."""
    rows = np.arange(len(targets))
    predicted = probabilities.argmax(axis=1)
    of_target = probabilities[rows, targets]  # (N,)
    ahead = probabilities > of_target[:, None]  # (N, C)
    ahead |= (probabilities == of_target[:, None]) & (np.arange(probabilities.shape[1]) < targets[:, None])
    return Outcomes(
        targets=targets.astype(np.int64),
        predicted=predicted.astype(np.int64),
        confidences=probabilities[rows, predicted],
        target_probabilities=of_target,
        target_ranks=ahead.sum(axis=1),
    )


def join(parts: Sequence[Outcomes]) -> Outcomes:
    """Concatenate at least one part."""
    names = [field.name for field in fields(Outcomes)]
    return Outcomes(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def evaluate(outcomes: Outcomes, num_classes: int) -> Evaluation:
    """Compute all metrics of at least one image."""
    assert len(outcomes) > 0
    is_hit = outcomes.target_ranks == 0
    wrong = np.flatnonzero(~is_hit)
    per_class = _per_class(outcomes, is_hit, num_classes)
    return Evaluation(
        images=len(outcomes),
        accuracy=float(is_hit.mean()),
        top5=float((outcomes.target_ranks < TOP_K).mean()),
        loss=float(losses_of(outcomes).mean()),
        balanced_accuracy=float(per_class.recall[per_class.has_recall].mean()),
        mean_confidence=float(outcomes.confidences.mean()),
        macro=_averages(per_class, per_class.has_f1.astype(np.int64)),
        weighted=_averages(per_class, per_class.support),
        per_class=per_class,
        confusion=_confusion(outcomes, num_classes),
        calibration=calibration_of(outcomes.confidences, is_hit),
        coverage=coverage_of(outcomes.confidences, is_hit),
        mistakes=wrong[np.argsort(-outcomes.confidences[wrong], kind="stable")],
    )


def _per_class(outcomes: Outcomes, is_hit: np.ndarray, num_classes: int) -> PerClass:
    hits, support, predicted = (
        np.bincount(indices, minlength=num_classes)
        for indices in (outcomes.targets[is_hit], outcomes.targets, outcomes.predicted)
    )
    return PerClass(
        precision=hits / np.maximum(predicted, 1),
        recall=hits / np.maximum(support, 1),
        f1=2 * hits / np.maximum(support + predicted, 1),
        support=support,
        predicted=predicted,
    )


def _confusion(outcomes: Outcomes, num_classes: int) -> Confusion:
    cells, images = np.unique(outcomes.targets * num_classes + outcomes.predicted, return_counts=True)
    targets, predicted = np.divmod(cells, num_classes)
    return Confusion(num_classes, targets, predicted, images)


def _averages(per_class: PerClass, weights: np.ndarray) -> Averages:
    total = weights.sum()
    return Averages(
        precision=float(per_class.precision @ weights / total),
        recall=float(per_class.recall @ weights / total),
        f1=float(per_class.f1 @ weights / total),
    )


def losses_of(outcomes: Outcomes) -> np.ndarray:
    """(N,): the cross entropy of each image in nats, of probabilities of at least `TINY`."""
    # log(1/p) rather than -log(p): a perfect loss is 0, not -0.
    losses: np.ndarray = np.log(1 / np.maximum(outcomes.target_probabilities, TINY))
    return losses


def calibration_of(confidences: np.ndarray, is_hit: np.ndarray) -> Calibration:
    """Confidence against accuracy, of confidences (N,) and whether each prediction is right, (N,), bool."""
    edges = np.arange(NUM_BINS + 1) / NUM_BINS
    indices = (np.searchsorted(edges, confidences, side="left") - 1).clip(0, NUM_BINS - 1)  # (N,)
    images = np.bincount(indices, minlength=NUM_BINS)
    confidence = np.bincount(indices, confidences, NUM_BINS) / np.maximum(images, 1)
    accuracy = np.bincount(indices, is_hit, NUM_BINS) / np.maximum(images, 1)
    error = float(np.abs(accuracy - confidence) @ images / images.sum())
    columns = (edges[:-1], edges[1:], images, confidence, accuracy)
    bins = [
        CalibrationBin(lower, upper, count, *(means if count else (None, None)))
        for lower, upper, count, *means in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return Calibration(bins, error)
