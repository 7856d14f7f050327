"""Evaluation metrics of images that have any number of categories."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from train_pytorch_model.evaluation.likelihood import Derivatives, sigmoid, sigmoid_derivatives
from train_pytorch_model.evaluation.metrics import (
    TINY,
    TOP_K,
    Averages,
    Calibration,
    Evaluation,
    PerClass,
    calibration_of,
    confidence_interval,
)
from train_pytorch_model.image_classifier.answers import AnyCategories

MIN_GAIN_OVER_CHANCE = 0.05  # of mean average precision: less may be chance
MAX_CURVE_POINTS = 100  # of a category


@dataclass(frozen=True)
class MultiLabelOutcomes:
    """What N predictions came to, for each of C categories."""

    targets: np.ndarray  # (N, C), bool: which categories the images have
    probabilities: np.ndarray  # (N, C), float64
    answered: np.ndarray  # (N, C), bool: which are at least as probable as their thresholds

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def is_hit(self) -> np.ndarray:
        """Return (N,), bool: whether all categories of an image are answered, and no other."""
        is_hit: np.ndarray = (self.answered == self.targets).all(axis=1)
        return is_hit

    @property
    def losses(self) -> np.ndarray:
        """Return the sums of the binary cross entropies of each image, (N,), in nats."""
        of_given = np.where(self.targets, self.probabilities, 1 - self.probabilities)
        losses: np.ndarray = np.log(1 / np.maximum(of_given, TINY)).sum(axis=1)
        return losses

    @property
    def calibration(self) -> Calibration:
        """Return how often images have a category that is so probable, over all categories."""
        return calibration_of(self.probabilities.ravel(), self.targets.ravel())

    def select(self, indices: np.ndarray) -> "MultiLabelOutcomes":
        """Return the outcomes at `indices`, in that order."""
        rows = (getattr(self, field.name)[indices] for field in fields(self))
        return MultiLabelOutcomes(*rows)

    def with_logits(self, logits: np.ndarray) -> "MultiLabelOutcomes":
        """Return the outcomes of the same images with these logits (N, C); answers stay."""
        return replace(self, probabilities=sigmoid(logits))

    def evaluate(
        self,
        num_classes: int,  # noqa: ARG002, of a single answer
        thresholds: Sequence[float] | np.ndarray | None = None,
    ) -> "MultiLabelEvaluation":
        """Compute all metrics of at least one image, which has any number of answers."""
        assert thresholds is not None
        return evaluate_multi_label(self, np.asarray(thresholds, np.float64))

    def derivatives(self, logits: np.ndarray) -> Derivatives:
        """Return how the loss of these logits (N, C) changes with their temperature."""
        return sigmoid_derivatives(logits, self.targets)


@dataclass(frozen=True)
class Curve:
    """Precision by recall of a category, from its most probable image to all of them."""

    recall: Sequence[float]
    precision: Sequence[float]


@dataclass(frozen=True)
class MultiLabelEvaluation:
    """The metrics of N images with any number of C categories. Fractions are from 0 to 1."""

    images: int
    labels: int  # of all images
    unlabelled: int  # images without any category
    accuracy: float  # exact match: all categories of an image are answered, and no other
    # Of the images with a category: the most probable one is among theirs; one of the five is.
    top1: float
    top5: float
    loss: float  # mean sum of the binary cross entropies of an image, in nats
    mean_average_precision: float  # over the categories that have images
    average_precision: np.ndarray  # (C,), float64: NaN for a category without an image
    thresholds: np.ndarray  # (C,), float64
    micro: Averages  # of all answers
    macro: Averages  # unweighted mean over the categories that have images or are answered
    per_class: PerClass  # at the thresholds; 0 where undefined
    calibration: Calibration
    curves: Sequence[Curve]
    together: np.ndarray  # (C, C), int64: images that have both categories
    false_positives: np.ndarray  # (F, 2), int64: image and category, the most probable first
    missed: np.ndarray  # (M, 2), int64: image and category, the least probable first

    @property
    def correct(self) -> int:
        """Return for how many images exactly their categories are answered."""
        return round(self.accuracy * self.images)

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the accuracy."""
        return confidence_interval(self.accuracy, self.images)

    @property
    def measure(self) -> str:
        """Return what the accuracy is called in a sentence."""
        return AnyCategories.measure

    @property
    def accuracy_name(self) -> str:
        """Return what the accuracy is called."""
        return "Exact match"

    @property
    def quality(self) -> float:
        """Return how good the model is, from 0 to 1, whatever the number of images of each."""
        return self.mean_average_precision

    @property
    def further_metrics(self) -> dict[str, float]:
        """Return metrics of the published model that no epoch has, by their names."""
        return {
            "Final mean average precision": self.mean_average_precision,
            "Exact match": self.accuracy,
            "Micro F1": self.micro.f1,
            "Macro F1": self.macro.f1,
        }

    @property
    def baseline(self) -> float:
        """Return the mean average precision of guessing: the mean fraction of a category."""
        support = self.per_class.support
        return float(support[support > 0].mean()) / self.images if self.labels else 0.0

    @property
    def is_better_than_guessing(self) -> bool:
        """Return whether the mean average precision is above that of guessing."""
        return self.mean_average_precision > self.baseline + MIN_GAIN_OVER_CHANCE


AnyEvaluation = Evaluation | MultiLabelEvaluation


def multi_label_outcomes(
    targets: np.ndarray, probabilities: np.ndarray, thresholds: Sequence[float] | np.ndarray
) -> MultiLabelOutcomes:
    """Return the outcomes of targets and probabilities (N, C), with thresholds (C,)."""
    answered = probabilities >= np.asarray(thresholds)
    return MultiLabelOutcomes(targets.astype(bool), probabilities, answered)


def average_precisions(targets: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the average precision of each category, (C,), float64; NaN without an image."""
    from sklearn.metrics import average_precision_score

    return np.array(
        [
            average_precision_score(is_true, scores) if is_true.any() else np.nan
            for is_true, scores in zip(targets.T, probabilities.T, strict=True)
        ]
    )


def mean_of(values: np.ndarray) -> float:
    """Return the mean of the values that are numbers; NaN without any."""
    numbers = values[~np.isnan(values)]
    return float(numbers.mean()) if len(numbers) else np.nan


def evaluate_multi_label(
    outcomes: MultiLabelOutcomes, thresholds: np.ndarray
) -> MultiLabelEvaluation:
    """Compute all metrics of at least one image; the thresholds (C,) are those of new images."""
    targets = outcomes.targets
    probabilities = outcomes.probabilities
    per_class = _per_class(outcomes)
    precisions = average_precisions(targets, probabilities)
    is_labelled = targets.any(axis=1)
    is_among = np.take_along_axis(
        targets, np.argsort(-probabilities, axis=1, kind="stable"), axis=1
    )
    marks = targets.astype(np.float64)  # exact, and a hundred times as fast as integers
    return MultiLabelEvaluation(
        images=len(outcomes),
        labels=int(targets.sum()),
        unlabelled=int((~is_labelled).sum()),
        accuracy=float(outcomes.is_hit.mean()),
        top1=_mean_or_zero(is_among[is_labelled, 0]),
        top5=_mean_or_zero(np.asarray(is_among[is_labelled, :TOP_K].any(axis=1))),
        loss=float(outcomes.losses.mean()),
        mean_average_precision=mean_of(precisions),
        average_precision=precisions,
        thresholds=thresholds,
        micro=_micro(outcomes),
        macro=_macro(per_class),
        per_class=per_class,
        calibration=outcomes.calibration,
        curves=[
            _curve(is_true, scores)
            for is_true, scores in zip(targets.T, probabilities.T, strict=True)
        ],
        together=(marks.T @ marks).astype(np.int64),
        false_positives=_ranked(outcomes.answered & ~targets, -probabilities),
        missed=_ranked(targets & ~outcomes.answered, probabilities),
    )


def _mean_or_zero(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0


def _per_class(outcomes: MultiLabelOutcomes) -> PerClass:
    hits = (outcomes.targets & outcomes.answered).sum(axis=0)
    support = outcomes.targets.sum(axis=0)
    predicted = outcomes.answered.sum(axis=0)
    return PerClass(
        precision=hits / np.maximum(predicted, 1),
        recall=hits / np.maximum(support, 1),
        f1=2 * hits / np.maximum(support + predicted, 1),
        support=support,
        predicted=predicted,
    )


def _micro(outcomes: MultiLabelOutcomes) -> Averages:
    hits = int((outcomes.targets & outcomes.answered).sum())
    labels = int(outcomes.targets.sum())
    answers = int(outcomes.answered.sum())
    return Averages(
        precision=hits / max(1, answers),
        recall=hits / max(1, labels),
        f1=2 * hits / max(1, labels + answers),
    )


def _macro(per_class: PerClass) -> Averages:
    has_metrics = per_class.support + per_class.predicted > 0
    columns = (per_class.precision, per_class.recall, per_class.f1)
    return Averages(*(_mean_or_zero(values[has_metrics]) for values in columns))


def _curve(is_true: np.ndarray, scores: np.ndarray) -> Curve:
    """Return the curve of a category, whose images are true or not, (N,), by their scores (N,)."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(is_true[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0, True))
    if len(last) > MAX_CURVE_POINTS:
        last = last[np.linspace(0, len(last) - 1, MAX_CURVE_POINTS).astype(np.int64)]
    precision = hits[last] / (last + 1)
    recall = hits[last] / max(1, int(is_true.sum()))
    return Curve(recall.tolist(), precision.tolist())


def _ranked(chosen: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the rows and columns of the chosen cells (N, C), bool, by increasing keys: (K, 2)."""
    cells = np.argwhere(chosen)
    order = np.argsort(keys[chosen], kind="stable")
    ranked: np.ndarray = cells[order]
    return ranked
