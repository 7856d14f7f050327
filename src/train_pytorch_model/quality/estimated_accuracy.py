"""How accurate a model is on images without labels.

If probabilities are calibrated, the mean confidence is the accuracy. Of images that are worse than
those of the validation it is too high, and the more so, the higher their energies are. By how much
is measured when a model is trained, on validation images that were degraded in several ways (as
Deng and Zheng 2021, Are Labels Always Necessary for Classifier Accuracy Evaluation?, with energies
as in Peng et al. 2024, Energy-based Automated Model Evaluation): the confidence is too high by a
`slope` times what the energies exceed those of the validation images, on average.
"""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.histograms import Falls, Histograms

DEVIATIONS = 1.96  # on either side of an estimate: 95 %
# Of the difference between accuracy and mean confidence of images like the validation images, as
# the temperature leaves it: a prior, to which few validation images add little.
MISCALIBRATION = 0.015
MAX_EXCESS = 8.0  # standard deviations, of an image: beyond, nothing is left to recognize
# Of the slope that fits the trials best. Other changes are mostly milder, and confidences follow
# them better: of three sets of images, this was right most often.
CAUTION = 0.5


@dataclass(frozen=True)
class Energies:
    """The energies of the validation images, to which others are compared."""

    mean: float
    deviation: float

    def excess(self, energies: np.ndarray) -> np.ndarray:
        """Return by how many deviations energies (N,) are above the mean, and 0 below: (N,)."""
        deviations = (energies - self.mean) / max(self.deviation, 1e-9)
        excess: np.ndarray = np.clip(deviations, 0, MAX_EXCESS)
        return excess


@dataclass(frozen=True)
class Estimate:
    """An accuracy, from 0 to 1, and between which values it is in 95 % of such estimates."""

    accuracy: float
    interval: tuple[float, float]


def estimate_accuracy(
    histograms: Histograms, confidences: np.ndarray, energies: np.ndarray
) -> Estimate:
    """Return the estimate for N images, of which not all energies may be known.

    It is NaN without images.
    """
    if not len(confidences):
        return Estimate(np.nan, (np.nan, np.nan))
    mean = float(confidences.mean())
    gap, gap_variance = _gap(histograms)
    overconfidence, spread = _overconfidence(histograms, mean, energies)
    accuracy = float(np.clip(mean + gap - overconfidence, 0, 1))
    # Whether each image is recognized is a matter of chance, given its confidence.
    count = len(confidences)
    chance = (float((confidences * (1 - confidences)).sum()) + 1) / (count + 4) / count
    margin = DEVIATIONS * np.sqrt(chance + gap_variance + spread**2)
    return Estimate(accuracy, (max(0.0, accuracy - margin), min(1.0, accuracy + margin)))


def _gap(histograms: Histograms) -> tuple[float, float]:
    """Return how much higher than the mean confidence the accuracy is, and its variance.

    Of few validation images that is mostly chance, and taken for less.
    """
    count = histograms.images
    smoothed = (histograms.accuracy * count + 2) / (count + 4)
    chance = smoothed * (1 - smoothed) / (count + 4)
    weight = MISCALIBRATION**2 / (MISCALIBRATION**2 + chance)
    gap = weight * (histograms.accuracy - histograms.confidence)
    return gap, weight * chance


def _overconfidence(
    histograms: Histograms, mean: float, energies: np.ndarray
) -> tuple[float, float]:
    """Return by how much the mean confidence of images is too high, and how uncertain that is."""
    falls = histograms.falls
    energies = energies[np.isfinite(energies)]
    # The accuracy may have fallen twice as much as the confidence.
    doubt = max(0.0, histograms.confidence - mean) / 2
    if falls is None or not len(energies):
        return 0.0, doubt
    excess = Energies(falls.energy, falls.deviation).excess(energies)
    variance = falls.excess_deviation**2 * (1 / len(excess) + 1 / histograms.images)
    rise = max(0.0, float(excess.mean()) - falls.excess)
    rise *= rise**2 / (rise**2 + variance + 1e-12)  # a small one is mostly chance
    slope, spread = slope_of(falls)
    return slope * rise, float(np.hypot(spread * rise, doubt))


def slope_of(falls: Falls) -> tuple[float, float]:
    """Return by how much confidences are too high where energies rise by one, and its spread."""
    rises = np.maximum(falls.rises, 0)
    over = np.subtract(falls.accuracy, falls.confidence)
    total = float((rises**2).sum())
    if not total:
        return 0.0, 0.0
    slope = CAUTION * max(0.0, float((rises * over).sum()) / total)
    spread = np.sqrt(((over - slope * rises) ** 2).sum() / total)
    return slope, float(spread)
