"""Evaluation metrics, computed from targets and probabilities without torch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

TOP_K = 5
DEVIATIONS = (
    1.96  # standard deviations on either side of the mean hold 95 % of a normal distribution
)
NUM_BINS = 15  # as in Guo et al. 2017
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
PERCENTS = range(1, 101)
# Probabilities are clamped to this in the loss, at 708 nats; smaller floats lose digits. A higher
# limit, such as scikit-learn's at 36 nats, would give another loss than that of the epochs, which
# comes from logits.
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Outcomes:
    """What is kept of N predictions: all metrics follow from it, so the N x C probabilities can be
    freed."""

    targets: np.ndarray  # (N,), int64: the true categories, as class indices
    predicted: np.ndarray  # (N,), int64: the most probable categories; of equal ones, the first
    confidences: np.ndarray  # (N,), float64: the probabilities of the predicted categories
    target_probabilities: np.ndarray  # (N,), float64: the probabilities of the true categories
    target_ranks: (
        np.ndarray
    )  # (N,), int64: categories above the true one, ties by class index; 0 is a hit

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, indices: np.ndarray) -> "Outcomes":
        """The outcomes at `indices`, in that order."""
        return Outcomes(*(getattr(self, field.name)[indices] for field in fields(self)))


@dataclass(frozen=True)
class PerClass:
    """Metrics per category; 0 where undefined: without an image, or without one predicted as it."""

    precision: (
        np.ndarray
    )  # (C,), float64: of the images predicted as it, the fraction that belong to it
    recall: (
        np.ndarray
    )  # (C,), float64: of the images of this category, the fraction predicted as it
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
    """Confidence against accuracy of the images with a confidence in a bin; None if there are none."""

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
    """The images that are answered if only a confidence of at least `threshold` counts as an
    answer."""

    threshold: float
    images: int
    share: float  # fraction of all images
    accuracy: float | None  # fraction of the answered images that are right; None without any


@dataclass(frozen=True)
class Coverage:
    """What answering only when confident gives: the share of images answered against their
    accuracy.

    As in El-Yaniv and Wiener 2010, On the Foundations of Noise-free Selective Classification.
    """

    rows: Sequence[CoverageRow]
    accuracies: Sequence[
        float
    ]  # (100,): the accuracy of the most confident 1, 2, … 100 % of the images


@dataclass(frozen=True)
class Confusion:
    """The (C, C) confusion matrix of true by predicted categories, as its K nonzero cells, row by
    row."""

    num_classes: int  # C; all cells of 20,000 categories would take 3 GiB
    targets: np.ndarray  # (K,), int64: the rows, ascending
    predicted: np.ndarray  # (K,), int64: the columns, ascending within a row
    images: np.ndarray  # (K,), int64: counts, at least 1

    def rows(self) -> Iterator[np.ndarray]:
        """The rows of the dense matrix, each (C,), int64."""
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
        """The number of correctly classified images."""
        return self.images - len(self.mistakes)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy."""
        return confidence_interval(self.accuracy, self.images)

    @property
    def baseline(self) -> float:
        """The accuracy of always guessing the category with the most images, from 0 to 1."""
        return float(self.per_class.support.max()) / self.images

    @property
    def is_better_than_guessing(self) -> bool:
        """Whether the accuracy is above the baseline by more than chance."""
        return self.accuracy_interval[0] > self.baseline

    @property
    def accuracy_in_images(self) -> str:
        """The number of correctly classified images, and the interval of the accuracy, in words."""
        lowest, highest = self.accuracy_interval
        interval = f"95% confidence interval {lowest:.1%} to {highest:.1%}"
        return f"{self.correct:,} of {self.images:,} images, {interval}"


def confidence_interval(accuracy: float, images: int) -> tuple[float, float]:
    """Wilson's score interval (1927) of an accuracy, 95 %: holds for few images too, and near 0 and
    1.
    """
    weight = DEVIATIONS**2
    centre = (images * accuracy + weight / 2) / (images + weight)
    half = (
        DEVIATIONS * math.sqrt(images * accuracy * (1 - accuracy) + weight / 4) / (images + weight)
    )
    return max(0.0, centre - half), min(1.0, centre + half)


def outcomes_of(targets: np.ndarray, probabilities: np.ndarray) -> Outcomes:
    """Reduce targets (N,), class indices, and probabilities (N, C), float64, finite, to outcomes."""
    rows = np.arange(len(targets))
    predicted = probabilities.argmax(axis=1)
    of_target = probabilities[rows, targets]  # (N,)
    ahead = probabilities > of_target[:, None]  # (N, C)
    ahead |= (probabilities == of_target[:, None]) & (
        np.arange(probabilities.shape[1]) < targets[:, None]
    )
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
    targets, predicted, confidences = outcomes.targets, outcomes.predicted, outcomes.confidences
    is_hit = outcomes.target_ranks == 0
    wrong = np.flatnonzero(~is_hit)
    hits, support, answers = (
        np.bincount(indices, minlength=num_classes)
        for indices in (targets[is_hit], targets, predicted)
    )
    per_class = PerClass(
        precision=hits / np.maximum(answers, 1),
        recall=hits / np.maximum(support, 1),
        f1=2 * hits / np.maximum(support + answers, 1),
        support=support,
        predicted=answers,
    )
    cells, images = np.unique(targets * num_classes + predicted, return_counts=True)
    return Evaluation(
        images=len(outcomes),
        accuracy=float(is_hit.mean()),
        top5=float((outcomes.target_ranks < TOP_K).mean()),
        loss=float(losses_of(outcomes).mean()),
        balanced_accuracy=float(per_class.recall[support > 0].mean()),
        mean_confidence=float(confidences.mean()),
        macro=_averages(per_class, (support + answers > 0).astype(np.int64)),
        weighted=_averages(per_class, support),
        per_class=per_class,
        confusion=Confusion(num_classes, *np.divmod(cells, num_classes), images),
        calibration=calibration_of(confidences, is_hit),
        coverage=coverage_of(confidences, is_hit),
        mistakes=wrong[np.argsort(-confidences[wrong], kind="stable")],
    )


def _averages(per_class: PerClass, weights: np.ndarray) -> Averages:
    columns = (per_class.precision, per_class.recall, per_class.f1)
    return Averages(*(float(values @ weights / weights.sum()) for values in columns))


def losses_of(outcomes: Outcomes) -> np.ndarray:
    """(N,): the cross entropy of each image in nats, of probabilities of at least `TINY`."""
    # log(1/p) rather than -log(p): a perfect loss is 0, not -0.
    losses: np.ndarray = np.log(1 / np.maximum(outcomes.target_probabilities, TINY))
    return losses


def calibration_of(confidences: np.ndarray, is_hit: np.ndarray) -> Calibration:
    """Confidence against accuracy, of confidences (N,) and whether each prediction is right, (N,),
    bool.
    """
    edges = np.arange(NUM_BINS + 1) / NUM_BINS
    indices = (np.searchsorted(edges, confidences, side="left") - 1).clip(0, NUM_BINS - 1)  # (N,)
    images = np.bincount(indices, minlength=NUM_BINS)
    confidence = np.bincount(indices, confidences, NUM_BINS) / np.maximum(images, 1)
    accuracy = np.bincount(indices, is_hit, NUM_BINS) / np.maximum(images, 1)
    error = float(np.abs(accuracy - confidence) @ images / images.sum())
    columns = (edges[:-1], edges[1:], images, confidence, accuracy)
    bins = [
        CalibrationBin(lower, upper, count, *(means if count else (None, None)))
        for lower, upper, count, *means in zip(
            *(column.tolist() for column in columns), strict=True
        )
    ]
    return Calibration(bins, error)


def coverage_of(confidences: np.ndarray, is_hit: np.ndarray) -> Coverage:
    """The coverage of at least one image, from confidences (N,) and whether each is right, (N,),
    bool.
    """
    order = np.argsort(-confidences, kind="stable")
    hits = np.cumsum(is_hit[order])  # (N,), among the most confident 1, 2, … N
    rows = []
    for threshold in THRESHOLDS:
        images = int((confidences >= threshold).sum())
        accuracy = int(hits[images - 1]) / images if images else None
        rows.append(CoverageRow(threshold, images, images / len(hits), accuracy))
    counts = [max(1, round(len(hits) * percent / 100)) for percent in PERCENTS]
    return Coverage(rows, [int(hits[count - 1]) / count for count in counts])
