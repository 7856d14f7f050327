"""One temperature for all logits, so that probabilities can be acted on.

A network is rarely right as often as its probabilities say. Dividing its logits by one number,
fitted on the validation images, mends most of that and changes no prediction (Guo et al. 2017, On
Calibration of Modern Neural Networks, section 4.2).
"""

import math
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.evaluation.metrics import AnyOutcomes, Outcomes
from train_pytorch_model.evaluation.multi_label import MultiLabelOutcomes

MIN_IMAGES = 20  # to fit on: fewer say more about themselves than about the model
FOLDS = 5  # halves miss what is to be gained: their own temperatures scatter too much
MAX_FITTED = 1 << 22  # logits; of more images, an even sample
LIMITS = (0.05, 20.0)  # of an inverse temperature
# Standard deviation of inverse temperatures before any image is seen: what a few dozen images say
# is held back.
SPREAD = 0.5
MIN_GAIN = 0.001  # of the loss: a temperature next to 1 would be noise
MAX_STEPS = 50  # Newton's method takes about six
CONVERGED = 1e-9  # relative change of the inverse temperature


@dataclass(frozen=True)
class ProbabilityQuality:
    """How good probabilities are."""

    loss: float  # mean of an image, in nats
    error: float  # expected calibration error, from 0 to 1

    @classmethod
    def of(cls, outcomes: Outcomes | MultiLabelOutcomes) -> "ProbabilityQuality":
        """Measure the probabilities of at least one image."""
        return cls(float(outcomes.losses.mean()), outcomes.calibration.error)


@dataclass(frozen=True)
class Temperature:
    """What logits are divided by, and what that does to images on which it was not fitted."""

    # 1 if none is better than what the network says, on images on which it was not fitted.
    value: float
    before: ProbabilityQuality
    after: ProbabilityQuality  # each fold of the images with the temperature of the others


def fit_temperature(logits: np.ndarray, outcomes: Outcomes | MultiLabelOutcomes) -> Temperature:
    """Fit a temperature to the logits (N, C), float32, that have led to these N outcomes.

    There may be no logits, if they were too many to keep: then there is no temperature, as with few
    images. It is cross-fitted: each of `FOLDS` parts of the images gets the temperature of the
    others, and there is one only if that lowers the loss of all by `MIN_GAIN`. Of few images, a
    part may lose by chance.
    """
    if len(logits) < MIN_IMAGES:
        quality = ProbabilityQuality.of(outcomes)
        return Temperature(1.0, quality, quality)
    every = -(-logits.size // MAX_FITTED)  # rounded up
    sample = np.arange(0, len(logits), every)
    logits = logits[sample]
    outcomes = outcomes.select(sample)

    before = ProbabilityQuality.of(outcomes)
    folds = np.arange(len(logits)) % FOLDS
    temperatures = []
    for fold in range(FOLDS):
        is_other = folds != fold
        temperatures.append(_fit(logits[is_other], outcomes.select(np.flatnonzero(is_other))))
    calibrated = calibrate(outcomes, logits, np.array(temperatures)[folds])
    after = ProbabilityQuality.of(calibrated)
    if after.loss >= (1 - MIN_GAIN) * before.loss:
        return Temperature(1.0, before, before)
    return Temperature(_fit(logits, outcomes), before, after)


def calibrate(
    outcomes: AnyOutcomes, logits: np.ndarray, temperature: float | np.ndarray
) -> AnyOutcomes:
    """Return the outcomes of the same predictions at a temperature, one for all images or (N,)."""
    calibrated: AnyOutcomes = outcomes.with_logits(logits / np.reshape(temperature, (-1, 1)))
    return calibrated


def describe_temperature(temperature: Temperature) -> str:
    """Return what has been done about the probabilities, in words."""
    before = temperature.before
    after = temperature.after
    if temperature.value == 1:
        return (
            "The probabilities are those of the network: adjusting them on the validation images"
            f" would hardly make them better (loss {before.loss:.4f}, calibration error"
            f" {before.error:.1%})."
        )
    return (
        f"The probabilities are calibrated by a temperature of {temperature.value:.3f} in the last"
        " layer. On validation images that it was not fitted on, the loss changes from"
        f" {before.loss:.4f} to {after.loss:.4f}, and the calibration error from"
        f" {before.error:.1%} to {after.error:.1%}."
    )


def _fit(logits: np.ndarray, outcomes: Outcomes | MultiLabelOutcomes) -> float:
    """Return the temperature of the lowest loss of logits (N, C) with these outcomes.

    It is found by Newton's method within a bracket: the loss is convex in 1/T. A normal
    distribution of the inverse temperature around 1, of deviation `SPREAD`, counts as much as an
    image, and so fades as they become more.
    """
    derivatives = outcomes.derivatives(logits)
    prior = 1 / (SPREAD**2 * len(logits))

    inverse = 1.0
    low, high = LIMITS
    for _ in range(MAX_STEPS):
        slope, curvature = derivatives(inverse)
        slope = slope + (inverse - 1) * prior
        curvature = curvature + prior
        if slope > 0:
            high = inverse
        else:
            low = inverse
        estimate = inverse - slope / curvature if curvature > 0 else low
        if not low < estimate < high:
            estimate = math.sqrt(low * high)
        if abs(estimate - inverse) <= CONVERGED * inverse:
            break
        inverse = estimate
    return float(1 / inverse)
