"""Margins of training images."""

import numpy as np
import pytest
import torch
from tests.trainings import ALONE

from train_pytorch_model.training.margins import MIXED, UNIT, Margins, margins_of

CPU = torch.device("cpu")
LOGITS = torch.tensor([[2.0, 0.0, 1.0], [0.0, 0.0, 3.0], [9.0, 8.0, 7.0]])


def test_a_margin_is_the_probability_against_the_best_other_category() -> None:
    margins = margins_of(LOGITS, torch.tensor([0, 1, 2]))
    expected = 1 / (1 + np.exp([-1.0, 3.0, 2.0]))
    np.testing.assert_allclose(margins[0] / UNIT, expected, atol=1 / UNIT)
    assert margins[1].tolist() == [2, 2, 0]


def test_only_images_that_cutmix_has_left_alone_have_a_margin() -> None:
    targets = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.7, 0.3], [0.0, 0.0, 1.0]])
    margins = margins_of(LOGITS, targets)
    plain = margins_of(LOGITS, torch.tensor([0, 1, 2]))
    assert margins[0].tolist() == [plain[0, 0], MIXED, plain[0, 2]]


def test_an_empty_batch_has_no_margins() -> None:
    assert margins_of(LOGITS[:0], torch.tensor([], dtype=torch.int64)).shape == (2, 0)


def test_means_are_over_the_epochs_that_count_and_in_which_an_image_was_seen() -> None:
    margins = Margins(4, CPU)
    halves, quarters = UNIT // 2, UNIT // 4
    margins.add(np.array([0, 2]), 1, torch.tensor([[halves, MIXED], [1, 2]], dtype=torch.int32))
    margins.add(np.array([2, 0]), 2, torch.tensor([[quarters, 0], [7, 5]], dtype=torch.int32))
    margins.add(np.array([0, 1]), 3, torch.tensor([[quarters, UNIT], [3, 0]], dtype=torch.int32))
    margins.close_epoch(3, best_epoch=3)
    margins.add(
        np.array([0, 3]), 4, torch.tensor([[UNIT, UNIT], [1, 1]], dtype=torch.int32)
    )  # does not count
    means, others = margins.reduce(ALONE)
    assert means[:3] == pytest.approx([0.25, 1.0, 0.25])
    assert np.isnan(means[3])
    assert others[:3].tolist() == [3, 0, 7]  # as last seen
