"""Images unlike those that a model was trained on."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.special import logsumexp

from train_pytorch_model.image_classifier.predictions import (
    KNOWN,
    UnknownError,
    energies_of,
    known_json,
    read_threshold,
)


def test_the_energy_is_the_negative_log_of_the_summed_evidence() -> None:
    logits = np.random.default_rng(1).normal(0, 300, (50, 7)).astype(np.float32)
    np.testing.assert_allclose(
        energies_of(logits), -logsumexp(logits.astype(np.float64), axis=1), rtol=1e-6
    )


@pytest.mark.parametrize("fraction", [0.5, 0.9, 0.99])
def test_the_asked_fraction_of_the_validation_images_stays_known(
    fraction: float, tmp_path: Path
) -> None:
    energies = np.random.default_rng(1).normal(-5, 2, 2000)
    (tmp_path / KNOWN).write_text(known_json(energies), encoding="ascii")
    threshold = read_threshold(tmp_path, fraction)
    assert (energies <= threshold).mean() == pytest.approx(fraction, abs=0.003)


def test_all_images_are_known_by_default(tmp_path: Path) -> None:
    assert read_threshold(tmp_path, 1.0) == math.inf  # a designer's model has no such file


@pytest.mark.parametrize(
    ("content", "fraction", "reason"),
    [
        (None, 0.99, "no known.json"),
        ("{}", 0.99, "cannot be read"),
        ("[" * 100_000, 0.99, "cannot be read"),
        ('{"energies": [1, 2]}', 0.99, "201 numbers"),
        ('{"energies": "x"}', 0.99, "cannot be read"),
        (None, 0.0, "above 0"),
        (None, 1.5, "at most 1"),
        (None, math.nan, "at most 1"),
    ],
)
def test_without_a_threshold_the_reason_is_given(
    content: str | None, fraction: float, reason: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / KNOWN).write_text(content, encoding="ascii")
    with pytest.raises(UnknownError, match=reason):
        read_threshold(tmp_path, fraction)
