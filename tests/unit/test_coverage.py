"""Answering only above a confidence."""

import numpy as np
import pytest

from train_pytorch_model.measures.coverage import THRESHOLDS, coverage_of


def test_rows_count_the_images_with_at_least_that_confidence() -> None:
    random = np.random.default_rng(1)
    confidences = random.uniform(0.4, 1, 300).round(2)  # some are exactly a threshold
    is_hit = random.random(300) < confidences
    coverage = coverage_of(confidences, is_hit)
    assert [row.threshold for row in coverage.rows] == list(THRESHOLDS)
    for row in coverage.rows:
        answered = confidences >= row.threshold
        assert row.images == answered.sum() > 0
        assert row.share == pytest.approx(answered.mean())
        assert row.accuracy == pytest.approx(is_hit[answered].mean())


def test_the_curve_ends_at_the_accuracy_of_all_images() -> None:
    coverage = coverage_of(np.array([0.9, 0.3, 0.6, 0.8]), np.array([True, False, False, True]))
    assert len(coverage.accuracies) == 100
    assert [coverage.accuracies[percent - 1] for percent in (1, 25, 50, 75, 100)] == [1, 1, 1, 2 / 3, 0.5]
    assert coverage.rows[-1].accuracy is None


def test_a_single_image_is_enough() -> None:
    assert coverage_of(np.array([1.0]), np.array([False])).accuracies == [0.0] * 100
