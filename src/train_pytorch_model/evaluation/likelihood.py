"""How the likelihood of labels changes with the temperature of logits."""

from collections.abc import Callable

import numpy as np

Derivatives = Callable[[float], tuple[float, float]]
"""An inverse temperature → slope and curvature of the mean loss by it."""


def softmax(logits: np.ndarray) -> np.ndarray:
    """Return the probabilities (N, C), float64, for logits (N, C)."""
    powers: np.ndarray = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    powers /= powers.sum(axis=1, keepdims=True)
    return powers


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Return the probability of each category by itself, (N, C), float64."""
    powers = np.exp(-np.abs(logits.astype(np.float64)))  # never overflows
    probabilities: np.ndarray = np.where(logits >= 0, 1.0, powers) / (1 + powers)
    return probabilities


def softmax_derivatives(logits: np.ndarray, targets: np.ndarray) -> Derivatives:
    """Return the derivatives of the cross entropy of logits (N, C) with class indices (N,).

    The targets leave 1 / (N + 2) to the other categories, as in Platt 1999, Probabilistic Outputs
    for Support Vector Machines, section 2.2: if every prediction is right, the plain loss has no
    minimum.
    """
    scores = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)  # (N, C)
    of_target = scores[np.arange(len(scores)), targets]  # (N,)
    of_others = (scores.sum(axis=1) - of_target) / (scores.shape[1] - 1)  # (N,), their mean
    doubt = 1 / (len(scores) + 2)
    target_mean = ((1 - doubt) * of_target + doubt * of_others).mean()

    def derivatives(inverse: float) -> tuple[float, float]:
        probabilities = softmax(scores * inverse)
        means = (probabilities * scores).sum(axis=1)  # (N,)
        variances = (probabilities * scores**2).sum(axis=1) - means**2  # (N,)
        return means.mean() - target_mean, variances.mean()

    return derivatives


def sigmoid_derivatives(logits: np.ndarray, targets: np.ndarray) -> Derivatives:
    """Return the derivatives of the sum of the binary cross entropies, with targets (N, C), bool.

    With the same doubt about each label.
    """
    scores = logits.astype(np.float64)  # (N, C)
    doubt = 1 / (len(scores) + 2)
    doubtful = np.where(targets, 1 - doubt, doubt)

    def derivatives(inverse: float) -> tuple[float, float]:
        probabilities = sigmoid(scores * inverse)
        slope = ((probabilities - doubtful) * scores).sum(axis=1).mean()
        curvature = (probabilities * (1 - probabilities) * scores**2).sum(axis=1).mean()
        return slope, curvature

    return derivatives
