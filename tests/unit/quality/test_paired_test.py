"""The paired test of two models."""

import numpy as np
import pytest
from scipy.stats import binomtest

from train_pytorch_model.quality.paired_test import compare_hits, exact_p_value


@pytest.mark.parametrize(("one", "other"), [(0, 0), (0, 1), (0, 6), (3, 3), (2, 11), (40, 70)])
def test_the_probability_is_that_of_the_binomial_distribution(one: int, other: int) -> None:
    total = one + other
    expected = binomtest(one, total).pvalue if total else 1.0
    assert exact_p_value(one, other) == pytest.approx(expected)
    assert exact_p_value(other, one) == pytest.approx(expected)


def test_images_that_both_or_none_recognize_do_not_count() -> None:
    first = np.array([True, True, True, False, False])
    second = np.array([True, True, False, True, False])
    test = compare_hits(first, second)
    assert (test.images, test.first_correct, test.second_correct) == (5, 3, 3)
    assert (test.only_first, test.only_second) == (1, 1)
    assert test.p_value == 1
    assert test.gain == 0


def test_many_images_are_compared_at_once() -> None:
    first = np.zeros(500_000, bool)
    second = np.ones(500_000, bool)
    test = compare_hits(first, second)
    assert test.p_value < 1e-300
    assert test.gain == 1
