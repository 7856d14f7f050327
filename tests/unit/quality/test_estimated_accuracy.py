"""What the accuracy of images without labels is taken for."""

import msgspec
import numpy as np
import pytest
from numpy.random import Generator, default_rng

from train_pytorch_model.formats.histograms import Falls, Histograms
from train_pytorch_model.quality.drift import histograms_of
from train_pytorch_model.quality.estimated_accuracy import Energies, estimate_accuracy, slope_of

NOTHING = np.empty(0)


def drawn(rng: Generator, count: int, shift: float = 0.0) -> tuple[np.ndarray, ...]:
    """Draw energies, confidences, and hits; a shift makes confidences too high by a tenth of it."""
    confidences = rng.beta(6 / (1 + shift), 1, count)
    is_hit = rng.random(count) < np.maximum(confidences - shift / 10, 0)
    return rng.normal(-8 + shift, 1, count), confidences, is_hit


def validated(rng: Generator, count: int = 800) -> Histograms:
    """Return the histograms of calibrated images, and how they fare degraded in eight ways."""
    energies, confidences, is_hit = drawn(rng, count)
    histograms = histograms_of({}, confidences, np.zeros(count, np.int64), is_hit, 2)
    of_energies = Energies(float(energies.mean()), float(energies.std()))
    excess = of_energies.excess(energies)
    falls = []
    for shift in np.linspace(0.1, 2, 8):
        degraded, confidence, hit = drawn(rng, count, shift)
        rise = of_energies.excess(degraded).mean() - excess.mean()
        falls.append(
            [is_hit.mean() - hit.mean(), confidences.mean() - confidence.mean(), float(rise)]
        )
    accuracy, confidence, rises = np.transpose(falls).tolist()
    return msgspec.structs.replace(
        histograms,
        falls=Falls(
            accuracy=accuracy,
            confidence=confidence,
            rises=rises,
            energy=of_energies.mean,
            deviation=of_energies.deviation,
            excess=float(excess.mean()),
            excess_deviation=float(excess.std()),
        ),
    )


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.4])
def test_the_accuracy_is_estimated_where_confidences_are_too_high(shift: float) -> None:
    rng = default_rng(0)
    errors = []
    covered = []
    for _ in range(60):
        energies, confidences, is_hit = drawn(rng, 300, shift)
        estimate = estimate_accuracy(validated(rng), confidences, energies)
        errors.append(estimate.accuracy - is_hit.mean())
        lowest, highest = estimate.interval
        covered.append(lowest <= is_hit.mean() <= highest)
    assert abs(np.mean(errors)) < 0.005 + shift / 20  # the mean confidence is wrong by a tenth
    assert np.mean(np.abs(errors) <= 0.05) >= 0.8
    assert np.mean(covered) >= 0.85


def test_without_degraded_images_the_mean_confidence_is_the_estimate() -> None:
    confidences = np.linspace(0.9, 1, 1000)
    histograms = histograms_of({}, confidences, np.zeros(1000, np.int64), np.ones(1000, bool), 2)
    now = estimate_accuracy(histograms, confidences - 0.1, NOTHING)
    before = estimate_accuracy(histograms, confidences, NOTHING)
    assert 0.95 < before.accuracy <= 1
    assert now.accuracy == pytest.approx(before.accuracy - 0.1)
    width = np.diff(now.interval)
    assert width > 3 * np.diff(before.interval)  # confidences that fall are not to be trusted


def test_without_images_there_is_no_estimate() -> None:
    assert np.isnan(estimate_accuracy(validated(default_rng(1)), NOTHING, NOTHING).accuracy)


def test_degradations_that_change_nothing_say_nothing() -> None:
    falls = Falls([0.0, 0.0], [0.0, 0.0], [0.0, -0.1], 0.0, 0.0, 0.0, 0.0)
    assert slope_of(falls) == (0.0, 0.0)
    rising = Falls([0.2, 0.4], [0.1, 0.2], [1.0, 2.0], 0.0, 1.0, 0.4, 0.6)
    slope, spread = slope_of(rising)
    assert slope == pytest.approx(0.05)
    assert spread == pytest.approx(0.05)
