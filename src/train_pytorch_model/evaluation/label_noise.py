"""How many labels are wrong, and which, by predictions of images that a network has not learned.

A label is what the network expects, at the temperature that suits it, or, for a fraction of the
images, any category at all. The most likely fraction explains the labels that the network holds for
all but impossible; those that it only holds for improbable are its own mistakes, of which a weak
network expects many. So of clean labels hardly any are suspected, however weak the network is, and
where it cannot tell mistakes of its own from wrong labels, the fraction is 0: that takes strong
evidence, as mistakes and temperature explain much of it, too.
"""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.evaluation.calibration import MIN_IMAGES, SPREAD
from train_pytorch_model.evaluation.likelihood import softmax

MAX_FITTED = 1 << 20  # logits; of more images, an even sample
STARTS = (0.02, 0.15)  # fractions
LIMITS = ((-3.0, 3.0), (-12.0, 0.0))  # of the logarithm of 1/T, and of the fraction's log odds
NO_ODDS = -40.0
WITHOUT = (LIMITS[0], (NO_ODDS, NO_ODDS))
# Twice the logarithm of the likelihood ratio from which on labels count as wrong: of 20 draws of
# clean labels each at 45 sizes and accuracies, one was above.
MIN_EVIDENCE = 10.0


@dataclass(frozen=True)
class LabelNoise:
    """What explains the labels best."""

    fraction: float  # of labels that may be any category, the right one among them
    inverse_temperature: float

    def wrong_probabilities(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return how probable it is that the label of each image is wrong, (N,), from 0 to 1."""
        of_target = self.label_probabilities(logits, targets)
        by_chance = self.fraction / logits.shape[1]
        any_way = (1 - self.fraction) * of_target + by_chance
        wrong: np.ndarray = by_chance * (1 - of_target) / np.maximum(any_way, np.finfo(float).tiny)
        return wrong

    def label_probabilities(self, logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """Return the probability of each image's label (N,), from 0 to 1, as if none were wrong."""
        probabilities = softmax(logits * self.inverse_temperature)
        of_target: np.ndarray = probabilities[np.arange(len(targets)), targets]
        return of_target


def fit_label_noise(logits: np.ndarray, targets: np.ndarray) -> LabelNoise:
    """Return what explains labels (N,) by logits (N, C) of images that the network has not learned.

    With few images, or one category, the fraction is 0.
    """
    from scipy.optimize import minimize  # here, because it takes a fifth of a second

    if len(logits) < MIN_IMAGES or logits.shape[1] < 2:
        return LabelNoise(0.0, 1.0)
    every = -(-logits.size // MAX_FITTED)  # rounded up
    sampled = logits[::every].astype(np.float64)
    scores = sampled - sampled.max(axis=1, keepdims=True)
    labels = targets[::every]

    def loss(values: np.ndarray) -> tuple[float, np.ndarray]:
        return _loss_and_gradient(values, scores, labels)

    starts = [np.array([0.0, np.log(start / (1 - start))]) for start in STARTS]
    fits = [minimize(loss, start, jac=True, method="L-BFGS-B", bounds=LIMITS) for start in starts]
    best = min(fits, key=lambda fit: fit.fun)
    without = minimize(loss, [0.0, NO_ODDS], jac=True, method="L-BFGS-B", bounds=WITHOUT)
    if 2 * len(labels) * (without.fun - best.fun) < MIN_EVIDENCE:
        return LabelNoise(0.0, float(np.exp(without.x[0])))
    log_inverse, log_odds = best.x
    return LabelNoise(float(_logistic(log_odds)), float(np.exp(log_inverse)))


def _loss_and_gradient(
    values: np.ndarray, scores: np.ndarray, labels: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the mean loss of labels (N,) by scores (N, C), and its gradient by both values.

    The values are the logarithm of 1/T and the log odds of the fraction. A normal distribution of
    1/T around 1 counts as much as an image, as in `fit_temperature`.
    """
    inverse = np.exp(values[0])
    fraction = _logistic(values[1])
    rows = np.arange(len(labels))
    probabilities = softmax(scores * inverse)
    of_target = probabilities[rows, labels]
    slopes = of_target * (scores[rows, labels] - (probabilities * scores).sum(axis=1))
    by_chance = 1 / scores.shape[1]
    any_way = np.maximum((1 - fraction) * of_target + fraction * by_chance, 1e-12)
    prior = (inverse - 1) / (SPREAD**2 * len(labels))
    loss = -np.log(any_way).mean() + (inverse - 1) * prior / 2
    by_inverse = -((1 - fraction) * slopes / any_way).mean() + prior
    by_fraction = -((by_chance - of_target) / any_way).mean()
    gradient = np.array([by_inverse * inverse, by_fraction * fraction * (1 - fraction)])
    return float(loss), gradient


def _logistic(value: float) -> float:
    return float(1 / (1 + np.exp(-value)))
