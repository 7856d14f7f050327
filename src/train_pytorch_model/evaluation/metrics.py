"""Evaluation metrics, computed from targets and probabilities without torch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from train_pytorch_model.evaluation.likelihood import Derivatives, softmax, softmax_derivatives
from train_pytorch_model.image_classifier.answers import OneCategory

AnyOutcomes = TypeVar("AnyOutcomes", bound=Any)  # dataclasses of a row per image

TOP_K = 5
# Standard deviations on either side of the mean hold 95 % of a normal distribution.
DEVIATIONS = 1.96
NUM_BINS = 15  # as in Guo et al. 2017
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
PERCENTS = range(1, 101)
# Probabilities are clamped to this in the loss, at 708 nats; smaller floats lose digits. A higher
# limit, such as scikit-learn's at 36 nats, would give another loss than that of the epochs, which
# comes from logits.
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Outcomes:
    """What N predictions came to: all metrics follow from it, not from N x C probabilities."""

    targets: np.ndarray  # (N,), int64: the true categories, as class indices
    predicted: np.ndarray  # (N,), int64: the most probable categories; of equal ones, the first
    confidences: np.ndarray  # (N,), float64: the probabilities of the predicted categories
    target_probabilities: np.ndarray  # (N,), float64: the probabilities of the true categories
    # (N,), int64: how many categories are above the true one, ties by class index; 0 is a hit
    target_ranks: np.ndarray

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_hit(self) -> np.ndarray:
        """Return (N,), bool: whether the prediction is right."""
        is_hit: np.ndarray = self.target_ranks == 0
        return is_hit

    @property
    def losses(self) -> np.ndarray:
        """Return the cross entropies (N,), in nats."""
        return losses_of(self)

    @property
    def calibration(self) -> "Calibration":
        """Return how often predictions are right that are so confident."""
        return calibration_of(self.confidences, self.is_hit)

    def with_logits(self, logits: np.ndarray) -> "Outcomes":
        """Return the outcomes of the same predictions with these logits (N, C)."""
        probabilities = softmax(logits)
        rows = np.arange(len(logits))
        return replace(
            self,
            confidences=probabilities[rows, self.predicted],
            target_probabilities=probabilities[rows, self.targets],
        )

    def derivatives(self, logits: np.ndarray) -> Derivatives:
        """Return how the loss of these logits (N, C) changes with their temperature."""
        return softmax_derivatives(logits, self.targets)

    def evaluate(self, num_classes: int, thresholds: object = None) -> "Evaluation":  # noqa: ARG002
        """Compute all metrics of at least one image, of which each has one answer."""
        return evaluate(self, num_classes)

    def select(self, indices: np.ndarray) -> "Outcomes":
        """Return the outcomes at `indices`, in that order."""
        return Outcomes(*(getattr(self, field.name)[indices] for field in fields(self)))


@dataclass(frozen=True)
class PerClass:
    """Metrics per category; 0 where undefined: without an image, or without one predicted as it."""

    # (C,), float64: of the images predicted as this category, the fraction that belong to it
    precision: np.ndarray
    # (C,), float64: of the images of this category, the fraction predicted as it
    recall: np.ndarray
    f1: np.ndarray  # (C,), float64: harmonic mean of precision and recall
    support: np.ndarray  # (C,), int64: images of this category
    predicted: np.ndarray  # (C,), int64: images predicted as this category


@dataclass(frozen=True)
class Averages:
    """Means of a `PerClass` over categories."""

    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class CalibrationBin:
    """Confidence and accuracy of the images with a confidence in a bin; None without any."""

    lower: float  # the lower edge, exclusive
    upper: float  # the upper edge, inclusive
    images: int
    confidence: float | None  # their mean
    accuracy: float | None  # the fraction of them that is predicted correctly


@dataclass(frozen=True)
class Calibration:
    """Confidence against accuracy, in bins of equal width over (0, 1]."""

    bins: Sequence[CalibrationBin]
    error: float
    """Expected calibration error, from 0 to 1: the mean distance of accuracy from confidence over
    all images (Guo et al. 2017, On Calibration of Modern Neural Networks, equation 3)."""


@dataclass(frozen=True)
class CoverageRow:
    """The images that are answered if an answer takes a confidence of at least `threshold`."""

    threshold: float
    images: int
    share: float  # fraction of all images
    accuracy: float | None  # fraction of the answered images that are right; None without any


@dataclass(frozen=True)
class Coverage:
    """How many images are answered if only confident answers count, and how many are right.

    As in El-Yaniv and Wiener 2010, On the Foundations of Noise-free Selective Classification.
    """

    rows: Sequence[CoverageRow]
    # (100,): the accuracy of the most confident 1, 2, … 100 % of the images
    accuracies: Sequence[float]


@dataclass(frozen=True)
class Confusion:
    """The (C, C) matrix of true by predicted categories, as its K nonzero cells, row by row."""

    num_classes: int  # C; all cells of 20,000 categories would take 3 GiB
    targets: np.ndarray  # (K,), int64: the rows, ascending
    predicted: np.ndarray  # (K,), int64: the columns, ascending within a row
    images: np.ndarray  # (K,), int64: counts, at least 1

    def rows(self) -> Iterator[np.ndarray]:
        """Yield the rows of the dense matrix, each (C,), int64."""
        starts = np.searchsorted(self.targets, np.arange(self.num_classes + 1))
        for start, end in pairwise(starts):
            row = np.zeros(self.num_classes, np.int64)
            row[self.predicted[start:end]] = self.images[start:end]
            yield row


@dataclass(frozen=True)
class Evaluation:
    """The metrics of N images classified into C categories. Fractions are from 0 to 1."""

    images: int
    accuracy: float
    # Fraction with the category among the five most probable; 1 with five categories or fewer.
    top5: float
    loss: float  # mean cross-entropy in nats, of probabilities of at least `TINY`
    balanced_accuracy: float  # mean recall over the categories that have images
    mean_confidence: float  # mean probability of the predicted category
    macro: Averages  # unweighted mean over the categories that have images or were predicted
    weighted: Averages  # mean over the categories, weighted by their number of images
    per_class: PerClass
    confusion: Confusion
    calibration: Calibration
    coverage: Coverage
    mistakes: np.ndarray  # (M,), int64: indices of the wrong predictions, the most confident first

    @property
    def correct(self) -> int:
        """Return the number of correctly classified images."""
        return self.images - len(self.mistakes)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the accuracy."""
        return confidence_interval(self.accuracy, self.images)

    @property
    def baseline(self) -> float:
        """Return the accuracy of always guessing the category with the most images, from 0 to 1."""
        return float(self.per_class.support.max()) / self.images

    @property
    def is_better_than_guessing(self) -> bool:
        """Return whether the accuracy is above the baseline by more than chance."""
        return self.accuracy_interval[0] > self.baseline

    @property
    def measure(self) -> str:
        """Return what the accuracy is called in a sentence."""
        return OneCategory.measure

    @property
    def accuracy_name(self) -> str:
        """Return what the accuracy of an epoch's validation is called."""
        return "Top 1 accuracy"

    @property
    def quality(self) -> float:
        """Return how good the model is, from 0 to 1, whatever the number of images of each."""
        return self.balanced_accuracy

    @property
    def further_metrics(self) -> dict[str, float]:
        """Return metrics of the published model that no epoch has, by their names."""
        return {}

    @property
    def accuracy_in_images(self) -> str:
        """Return how many images are right, and the interval of the accuracy, in words."""
        lowest, highest = self.accuracy_interval
        interval = f"95% confidence interval {lowest:.1%} to {highest:.1%}"
        return f"{self.correct:,} of {self.images:,} images, {interval}"


def confidence_interval(accuracy: float, images: int) -> tuple[float, float]:
    """Return the 95 % confidence interval of an accuracy, Wilson's score interval (1927).

    It holds for few images, too, and near 0 and 1.
    """
    weight = DEVIATIONS**2
    centre = (images * accuracy + weight / 2) / (images + weight)
    variance = images * accuracy * (1 - accuracy) + weight / 4
    half = DEVIATIONS * math.sqrt(variance) / (images + weight)
    return max(0.0, centre - half), min(1.0, centre + half)


def outcomes_of(targets: np.ndarray, probabilities: np.ndarray) -> Outcomes:
    """Reduce class indices (N,) and finite probabilities (N, C), float64, to outcomes."""
    rows = np.arange(len(targets))
    predicted = probabilities.argmax(axis=1)
    of_target = probabilities[rows, targets]  # (N,)
    is_earlier = np.arange(probabilities.shape[1]) < targets[:, None]  # (N, C), by class index
    ahead = probabilities > of_target[:, None]  # (N, C)
    ahead |= (probabilities == of_target[:, None]) & is_earlier
    return Outcomes(
        targets=targets.astype(np.int64),
        predicted=predicted.astype(np.int64),
        confidences=probabilities[rows, predicted],
        target_probabilities=of_target,
        target_ranks=ahead.sum(axis=1),
    )


def join(parts: Sequence[AnyOutcomes]) -> AnyOutcomes:
    """Concatenate at least one part."""
    kind = type(parts[0])
    names = [field.name for field in fields(kind)]
    joined: AnyOutcomes = kind(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in names)
    )
    return joined


def evaluate(outcomes: Outcomes, num_classes: int) -> Evaluation:
    """Compute all metrics of at least one image."""
    confidences = outcomes.confidences
    is_hit = outcomes.is_hit
    wrong = np.flatnonzero(~is_hit)
    per_class = _per_class(outcomes, num_classes)
    has_metrics = per_class.support + per_class.predicted > 0  # (C,)
    return Evaluation(
        images=len(outcomes),
        accuracy=float(is_hit.mean()),
        top5=float((outcomes.target_ranks < TOP_K).mean()),
        loss=float(losses_of(outcomes).mean()),
        balanced_accuracy=float(per_class.recall[per_class.support > 0].mean()),
        mean_confidence=float(confidences.mean()),
        macro=_averages(per_class, has_metrics.astype(np.int64)),
        weighted=_averages(per_class, per_class.support),
        per_class=per_class,
        confusion=_confusion(outcomes, num_classes),
        calibration=calibration_of(confidences, is_hit),
        coverage=coverage_of(confidences, is_hit),
        mistakes=wrong[np.argsort(-confidences[wrong], kind="stable")],
    )


def _per_class(outcomes: Outcomes, num_classes: int) -> PerClass:
    hits = np.bincount(outcomes.targets[outcomes.is_hit], minlength=num_classes)
    support = np.bincount(outcomes.targets, minlength=num_classes)
    predicted = np.bincount(outcomes.predicted, minlength=num_classes)
    return PerClass(
        precision=hits / np.maximum(predicted, 1),
        recall=hits / np.maximum(support, 1),
        f1=2 * hits / np.maximum(support + predicted, 1),
        support=support,
        predicted=predicted,
    )


def _confusion(outcomes: Outcomes, num_classes: int) -> Confusion:
    cells = outcomes.targets * num_classes + outcomes.predicted  # (N,), numbered row by row
    nonzero, images = np.unique(cells, return_counts=True)
    targets, predicted = np.divmod(nonzero, num_classes)
    return Confusion(num_classes, targets, predicted, images)


def _averages(per_class: PerClass, weights: np.ndarray) -> Averages:
    """Average over the categories, weighted by `weights` (C,), int64."""
    columns = (per_class.precision, per_class.recall, per_class.f1)
    return Averages(*(float(values @ weights / weights.sum()) for values in columns))


def losses_of(outcomes: Outcomes) -> np.ndarray:
    """Return the cross entropies (N,) in nats, of probabilities of at least `TINY`."""
    # log(1/p) rather than -log(p): a perfect loss is 0, not -0.
    losses: np.ndarray = np.log(1 / np.maximum(outcomes.target_probabilities, TINY))
    return losses


def calibration_of(confidences: np.ndarray, is_hit: np.ndarray) -> Calibration:
    """Compare confidences (N,) with accuracy; `is_hit` (N,), bool, has the right predictions."""
    edges = np.arange(NUM_BINS + 1) / NUM_BINS
    bin_of = np.searchsorted(edges, confidences, side="left") - 1  # (N,)
    bin_of = bin_of.clip(0, NUM_BINS - 1)
    images = np.bincount(bin_of, minlength=NUM_BINS)  # (NUM_BINS,), as the next two
    confidence = np.bincount(bin_of, confidences, NUM_BINS) / np.maximum(images, 1)
    accuracy = np.bincount(bin_of, is_hit, NUM_BINS) / np.maximum(images, 1)
    error = float(np.abs(accuracy - confidence) @ images / images.sum())
    bins = [
        CalibrationBin(
            lower=float(edges[index]),
            upper=float(edges[index + 1]),
            images=count,
            confidence=float(confidence[index]) if count else None,
            accuracy=float(accuracy[index]) if count else None,
        )
        for index, count in enumerate(images.tolist())
    ]
    return Calibration(bins, error)


def coverage_of(confidences: np.ndarray, is_hit: np.ndarray) -> Coverage:
    """Return the coverage of N images, at least one, from their confidences (N,).

    `is_hit` (N,), bool, has the right predictions.
    """
    order = np.argsort(-confidences, kind="stable")
    hits = np.cumsum(is_hit[order])  # (N,), among the most confident 1, 2, … N

    def accuracy_of(num_images: int) -> float:
        """Return the accuracy of the most confident images."""
        return int(hits[num_images - 1]) / num_images

    rows = []
    for threshold in THRESHOLDS:
        images = int((confidences >= threshold).sum())
        accuracy = accuracy_of(images) if images else None
        rows.append(CoverageRow(threshold, images, images / len(hits), accuracy))
    counts = [max(1, round(len(hits) * percent / 100)) for percent in PERCENTS]
    return Coverage(rows, [accuracy_of(count) for count in counts])
