"""The task of images with any number of categories: loss, targets, ranks, margins, first bias."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.recipes import decided_recipe
from tests.trainings import ALONE
from torch import nn
from torch.nn import functional as F

from train_pytorch_model.formats.label_kinds import ONE_PER_IMAGE, LabelKind, SetsPerImage
from train_pytorch_model.networks.initialize import set_new_bias
from train_pytorch_model.training.margins import MIXED, UNIT
from train_pytorch_model.training.metrics import NO_RANK, Sums
from train_pytorch_model.training.task import MultiLabel, SingleLabel, choose_task

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [-3.0, 1.0, 0.5], [0.1, 0.2, 0.3]])
TARGETS = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])

LISTS = SetsPerImage(np.eye(3, dtype=bool))


@dataclass(frozen=True)
class Images:
    """What a task asks of training images."""

    counts: tuple[int, ...]
    total: int
    labels: LabelKind = LISTS

    def __len__(self) -> int:
        return self.total

    def class_counts(self) -> np.ndarray:
        return np.array(self.counts)


@dataclass(frozen=True)
class Inputs:
    training: Images
    recipe: Any
    categories: tuple[str, ...] = ("a", "b", "c")


INPUTS = Inputs(Images((9, 49, 99), 199), decided_recipe())


def task_of(inputs: Inputs = INPUTS, **recipe: Any) -> MultiLabel:
    given: Any = replace(inputs, recipe=decided_recipe(**recipe))
    task = choose_task(given, ALONE)
    assert isinstance(task, MultiLabel)
    return task


def test_the_data_choose_the_task() -> None:
    single: Any = replace(INPUTS, training=Images((1, 2, 3), 6, ONE_PER_IMAGE))
    assert isinstance(choose_task(single, ALONE), SingleLabel)


def test_the_loss_is_a_binary_cross_entropy_of_each_category() -> None:
    task = task_of()
    expected = F.binary_cross_entropy_with_logits(LOGITS, TARGETS, reduction="sum")
    assert task.loss_sum(LOGITS, TARGETS) == expected
    assert task.validation_loss_sum(LOGITS, TARGETS) == expected


def test_the_last_layer_starts_from_how_frequent_categories_are() -> None:
    bias = task_of().initial_bias()
    assert bias is not None
    torch.testing.assert_close(bias.sigmoid(), torch.tensor([9.5, 49.5, 99.5]) / 200)
    head = nn.Linear(4, 3)
    before = head.bias.detach().clone()
    set_new_bias(head, bias, ("b",), ("a", "b", "c"))
    assert torch.equal(head.bias, torch.stack([bias[0], before[1], bias[2]]))


def test_balanced_categories_count_as_much_as_the_images_without_them() -> None:
    task = task_of(balance_classes=True)
    rates = np.array([9.5, 49.5, 99.5]) / 200
    weights = torch.tensor((1 - rates) / rates, dtype=torch.float32)
    expected = F.binary_cross_entropy_with_logits(
        LOGITS, TARGETS, pos_weight=weights, reduction="sum"
    )
    assert task.loss_sum(LOGITS, TARGETS) == pytest.approx(expected)
    torch.testing.assert_close(task.bias, torch.zeros(3), atol=1e-6, rtol=0)
    plain = F.binary_cross_entropy_with_logits(LOGITS, TARGETS, reduction="sum")
    assert task.validation_loss_sum(LOGITS, TARGETS) == plain


def test_smoothed_targets_keep_the_base_rates() -> None:
    task = task_of(label_smoothing=0.2)
    rates = torch.tensor([9.5, 49.5, 99.5]) / 200
    expected = F.binary_cross_entropy_with_logits(
        LOGITS, 0.8 * TARGETS + 0.2 * rates, reduction="sum"
    )
    assert task.loss_sum(LOGITS, TARGETS) == pytest.approx(expected)


def test_the_best_true_category_is_ranked_and_images_without_any_do_not_count() -> None:
    task = task_of()
    ranks = task.ranks(LOGITS, TARGETS)
    assert ranks.tolist() == [0, 1, NO_RANK]
    sums = Sums(torch.device("cpu"))
    sums.add(task.validation_loss_sum(LOGITS, TARGETS), ranks)
    metrics = sums.reduce_later(ALONE)()
    assert (metrics.top1, metrics.top5, metrics.images) == (0.5, 1.0, 3)


def test_a_margin_is_the_least_probable_given_answer() -> None:
    margins = task_of().margins(LOGITS, TARGETS)
    expected = torch.tensor([-1.0, -1.0, -0.3]).sigmoid()
    np.testing.assert_allclose(margins[0] / UNIT, expected, atol=1 / UNIT)
    assert margins[1].tolist() == [2, 1, 2]
    mixed = torch.tensor([[0.6, 0.0, 1.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    assert task_of().margins(LOGITS, mixed)[0].tolist()[0] == MIXED


def test_outcomes_of_batches_are_kept_in_their_order() -> None:
    rows = task_of().collect_outcomes(torch.device("cpu"))
    rows.add(LOGITS[:2], TARGETS[:2])
    rows.add(LOGITS[2:], TARGETS[2:])
    outcomes = rows.outcomes()
    np.testing.assert_array_equal(outcomes.targets, TARGETS.bool().numpy())
    np.testing.assert_allclose(outcomes.probabilities, LOGITS.double().sigmoid().numpy())
    assert len(task_of().collect_outcomes(torch.device("cpu")).outcomes()) == 0


def test_mean_average_precision_is_a_metric_of_each_epoch() -> None:
    task = task_of()
    rows = task.collect_outcomes(torch.device("cpu"))
    rows.add(LOGITS, TARGETS)
    metrics = task.further_metrics(rows.outcomes(), ALONE)
    assert metrics == {"Mean average precision": pytest.approx((1.0 + (1 + 2 / 3) / 2) / 2)}


def test_the_plan_says_what_is_different_of_lists() -> None:
    inputs: Any = INPUTS
    assert task_of().describe(inputs) == (
        "any number an image, 0.8 on average; a binary cross entropy for each category, whose last"
        " layer starts from how frequent they are; without label smoothing, which would make rare"
        " categories likelier, and CutMix, whose patch may hide what is labelled"
    )
