"""How good predictions are: numbers from targets and probabilities, without torch."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

TOP_K = 5
DEVIATIONS = 1.96  # of a normal distribution, on either side, that hold 95 % of it
NUM_BINS = 15  # as Guo et al. 2017
# The least probability that counts in the loss, at 708 nats; those below lose digits. A higher limit, such as
# scikit-learn's at 36 nats, would make another loss than that of the epochs, which is computed from logits.
TINY = np.finfo(np.float64).tiny


@dataclass(frozen=True)
class Outcomes:
    """What is kept of N predictions: all else follows from it, and the N x C probabilities need not last."""

    targets: np.ndarray
    """(N,), int64: the true categories, as class indices."""
    predicted: np.ndarray
    """(N,), int64: the most probable categories; of equals, the first."""
    confidences: np.ndarray
    """(N,), float64: the probabilities of those."""
    target_probabilities: np.ndarray
    """(N,), float64: the probabilities of the true categories."""
    target_ranks: np.ndarray
    """(N,), int64: how many categories come before the true one, among equals the first; 0 is a hit."""

    def __len__(self) -> int:
        return len(self.targets)

    def select(self, places: np.ndarray) -> "Outcomes":
        """Those at `places`, in that order."""
        return Outcomes(*(getattr(self, field.name)[places] for field in fields(self)))


@dataclass(frozen=True)
class PerClass:
    """One number a category; 0 where it is undefined, which the masks tell."""

    precision: np.ndarray
    """(C,), float64: of the images predicted as this category, the fraction that are of it."""
    recall: np.ndarray
    """(C,), float64: of the images of this category, the fraction predicted as it."""
    f1: np.ndarray
    """(C,), float64: harmonic mean of both."""
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
class Calibration:
    """Confidence against accuracy, in bins of equal width over (0, 1]; 0 where a bin is empty."""

    edges: np.ndarray
    """(bins + 1,), float64: a bin reaches from one edge, exclusive, to the next, inclusive."""
    images: np.ndarray
    """(bins,), int64."""
    confidence: np.ndarray
    """(bins,), float64: mean over the images of a bin."""
    accuracy: np.ndarray
    """(bins,), float64: the same."""
    error: float
    """Expected calibration error, from 0 to 1: the mean distance of accuracy from confidence over all images
    (Guo et al. 2017, On Calibration of Modern Neural Networks, equation 3)."""


@dataclass(frozen=True)
class ConfusedPair:
    """Images of one category that were predicted as another, both as class indices."""

    target: int
    predicted: int
    images: int


@dataclass(frozen=True)
class Confusion:
    """The (C, C) matrix of true by predicted categories, as its K cells that are not empty, row by row.

    Whole, that of 20,000 categories takes 3 GiB.
    """

    num_classes: int
    targets: np.ndarray
    """(K,), int64: the rows, ascending."""
    predicted: np.ndarray
    """(K,), int64: the columns, ascending within a row."""
    images: np.ndarray
    """(K,), int64, from 1."""

    def rows(self) -> Iterator[np.ndarray]:
        """The rows of the whole matrix, each (C,), int64."""
        starts = np.searchsorted(self.targets, np.arange(self.num_classes + 1))
        for start, end in pairwise(starts):
            row = np.zeros(self.num_classes, np.int64)
            row[self.predicted[start:end]] = self.images[start:end]
            yield row

    def largest_mistakes(self, limit: int) -> list[ConfusedPair]:
        """At most `limit` cells off the diagonal, by falling number of images."""
        wrong = np.flatnonzero(self.targets != self.predicted)
        cells = wrong[np.argsort(-self.images[wrong], kind="stable")][:limit]
        return [
            ConfusedPair(int(self.targets[cell]), int(self.predicted[cell]), int(self.images[cell]))
            for cell in cells
        ]


@dataclass(frozen=True)
class Evaluation:
    """All there is to say about predictions of N images into C categories. Fractions are from 0 to 1."""

    images: int
    accuracy: float
    top5: float
    """Fraction of images whose category is among the five most probable, or all where there are fewer."""
    loss: float
    """Mean cross entropy in nats, of probabilities of at least `TINY`."""
    balanced_accuracy: float
    """Mean recall over the categories that have images."""
    mean_confidence: float
    """Mean probability of the predicted category."""
    macro: Averages
    """Over the categories that have images or were predicted, each counting the same."""
    weighted: Averages
    """Over the categories, each counting as much as it has images."""
    per_class: PerClass
    confusion: Confusion
    calibration: Calibration
    mistakes: np.ndarray
    """(M,), int64: the places, from 0 to N - 1, of all wrong predictions, the most confident first."""

    @property
    def correct(self) -> int:
        """Images whose category was predicted."""
        return self.images - len(self.mistakes)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """The 95 % confidence interval of the accuracy: what many more such images may show.

        Wilson's (1927), which holds for few images and near 0 and 1 as well.
        """
        weight = DEVIATIONS**2
        centre = (self.correct + weight / 2) / (self.images + weight)
        variance = self.images * self.accuracy * (1 - self.accuracy) + weight / 4
        half = DEVIATIONS * math.sqrt(variance) / (self.images + weight)
        return max(0.0, centre - half), min(1.0, centre + half)


def accuracy_in_images(evaluation: Evaluation) -> str:
    """The accuracy in images, and how far chance may have moved it."""
    lowest, highest = evaluation.accuracy_interval
    interval = f"95% confidence interval {lowest:.1%} to {highest:.1%}"
    return f"{evaluation.correct:,} of {evaluation.images:,} images, {interval}"


def outcomes_of(targets: np.ndarray, probabilities: np.ndarray) -> Outcomes:
    """Of targets (N,), class indices, and probabilities (N, C), float64, finite."""
    places = np.arange(len(targets))
    predicted = probabilities.argmax(axis=1)
    of_target = probabilities[places, targets]  # (N,)
    ahead = probabilities > of_target[:, None]  # (N, C)
    ahead |= (probabilities == of_target[:, None]) & (np.arange(probabilities.shape[1]) < targets[:, None])
    return Outcomes(
        targets=targets.astype(np.int64),
        predicted=predicted.astype(np.int64),
        confidences=probabilities[places, predicted],
        target_probabilities=of_target,
        target_ranks=ahead.sum(axis=1),
    )


def joined(parts: Sequence[Outcomes]) -> Outcomes:
    """One after the other; at least one."""
    columns = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts])
        for field in fields(Outcomes)
    }
    return Outcomes(**columns)


def evaluate(outcomes: Outcomes, num_classes: int) -> Evaluation:
    """All numbers, of at least one image."""
    assert len(outcomes) > 0
    is_hit = outcomes.target_ranks == 0
    wrong = np.flatnonzero(~is_hit)
    per_class = _per_class(outcomes, is_hit, num_classes)
    # The logarithm of the inverse: a perfect loss is 0, not -0.
    losses = np.log(1 / np.maximum(outcomes.target_probabilities, TINY))
    return Evaluation(
        images=len(outcomes),
        accuracy=float(is_hit.mean()),
        top5=float((outcomes.target_ranks < TOP_K).mean()),
        loss=float(losses.mean()),
        balanced_accuracy=float(per_class.recall[per_class.has_recall].mean()),
        mean_confidence=float(outcomes.confidences.mean()),
        macro=_averages(per_class, per_class.has_f1.astype(np.int64)),
        weighted=_averages(per_class, per_class.support),
        per_class=per_class,
        confusion=_confusion(outcomes, num_classes),
        calibration=_calibration(outcomes.confidences, is_hit),
        mistakes=wrong[np.argsort(-outcomes.confidences[wrong], kind="stable")],
    )


def worst_categories(per_class: PerClass) -> np.ndarray:
    """Class indices of the categories that have images, int64, by rising F1, then by index."""
    present = np.flatnonzero(per_class.has_recall)
    return present[np.argsort(per_class.f1[present], kind="stable")]


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


def _calibration(confidences: np.ndarray, is_hit: np.ndarray) -> Calibration:
    edges = np.arange(NUM_BINS + 1) / NUM_BINS
    bins = (np.searchsorted(edges, confidences, side="left") - 1).clip(0, NUM_BINS - 1)
    images = np.bincount(bins, minlength=NUM_BINS)
    confidence = np.bincount(bins, confidences, NUM_BINS) / np.maximum(images, 1)
    accuracy = np.bincount(bins, is_hit, NUM_BINS) / np.maximum(images, 1)
    return Calibration(
        edges=edges,
        images=images,
        confidence=confidence,
        accuracy=accuracy,
        error=float(np.abs(accuracy - confidence) @ images / images.sum()),
    )
