"""Loss and accuracy from sums and counts."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.metrics import evaluate, outcomes_of
from train_pytorch_model.training.metrics import Metrics, Sums, ranks_of
from train_pytorch_model.training.outcomes import OutcomeRows

CPU = torch.device("cpu")
ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=CPU)


def sums_of(*batches: tuple[torch.Tensor, torch.Tensor]) -> Metrics:
    sums = Sums(CPU)
    for logits, targets in batches:
        sums.add(F.cross_entropy(logits, targets, reduction="sum"), ranks_of(logits, targets))
    return sums.reduce_later(ALONE)()


def test_means_are_over_images_and_not_over_batches() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(10, 7, generator=generator)
    targets = torch.randint(0, 7, (10,), generator=generator)
    at_once = sums_of((logits, targets))
    in_parts = sums_of(
        (logits[:7], targets[:7]), (logits[7:8], targets[7:8]), (logits[8:], targets[8:])
    )
    assert at_once.loss == pytest.approx(F.cross_entropy(logits.double(), targets).item(), abs=1e-6)
    assert in_parts.loss == pytest.approx(at_once.loss, abs=1e-6)
    assert (in_parts.top1, in_parts.top5, in_parts.images) == (at_once.top1, at_once.top5, 10)


def test_hits_are_counted_among_the_highest_logits() -> None:
    logits = torch.tensor([[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]]).repeat(6, 1)
    metrics = sums_of((logits, torch.arange(6)))
    assert metrics.top1 == pytest.approx(1 / 6)
    assert metrics.top5 == pytest.approx(5 / 6)
    assert metrics.images == 6


@pytest.mark.parametrize("num_classes", [2, 3, 5])
def test_with_five_categories_or_fewer_top5_is_always_a_hit(num_classes: int) -> None:
    logits = torch.randn(4, num_classes, generator=torch.Generator().manual_seed(0))
    assert sums_of((logits, torch.zeros(4, dtype=torch.int64))).top5 == 1


def test_sums_and_rows_count_the_same_hits_with_tied_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(-2, 3, (400, 12), generator=generator).to(torch.bfloat16)
    # Their probabilities underflow in double precision, but the order still counts.
    logits[0] = torch.tensor([0.0, *range(-2000, -900, 100)])
    targets = torch.randint(0, 12, (400,), generator=generator)
    targets[0] = 5
    sums, rows = sums_of((logits, targets)), OutcomeRows(CPU)
    rows.add(logits, targets)
    evaluation = evaluate(rows.outcomes(), 12)
    assert (sums.top1, sums.top5) == (evaluation.accuracy, evaluation.top5)
    assert rows.outcomes().target_ranks[0] == 7
    assert sums_of((torch.zeros(7, 7), torch.arange(7))).top5 == pytest.approx(5 / 7)


def test_sums_and_rows_agree_on_the_loss_of_a_confident_mistake() -> None:
    logits, targets = torch.tensor([[0.0, 80.0], [80.0, 0.0]]), torch.tensor([0, 0])
    sums, rows = sums_of((logits, targets)), OutcomeRows(CPU)
    rows.add(logits, targets)
    assert sums.loss == pytest.approx(40)
    assert evaluate(rows.outcomes(), 2).loss == pytest.approx(40)


def test_nan_logits_are_never_hits() -> None:
    nowhere = torch.full((2, 9), math.nan)
    assert sums_of((nowhere, torch.tensor([0, 8]))).top5 == 0
    beside = torch.tensor([[math.nan, 1.0, 0.0]])
    assert sums_of((beside, torch.tensor([1]))).top1 == 0


def test_an_empty_batch_adds_nothing() -> None:
    logits, targets = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    empty = torch.empty(0, 2), torch.empty(0, dtype=torch.int64)
    assert sums_of((logits, targets), empty) == sums_of((logits, targets))


def test_the_loss_over_no_images_is_nan() -> None:
    metrics = Sums(CPU).reduce_later(ALONE)()
    assert math.isnan(metrics.loss)
    assert (metrics.top1, metrics.top5, metrics.images) == (0.0, 0.0, 0)


def test_one_nan_loss_makes_the_mean_nan() -> None:
    logits, targets = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    bad = torch.tensor([[math.nan, 1.0]])
    assert math.isnan(sums_of((logits, targets), (bad, targets)).loss)


def test_sums_do_not_drift_over_many_batches() -> None:
    sums = Sums(CPU)
    logits, targets = torch.tensor([[2.0, 1.0]]), torch.tensor([0])
    loss = torch.tensor(0.1)
    for _ in range(5_000):
        sums.add(loss, ranks_of(logits, targets))
    metrics = sums.reduce_later(ALONE)()
    assert metrics.loss == pytest.approx(loss.item(), rel=1e-12)
    assert (metrics.top1, metrics.images) == (1.0, 5_000)


def test_adding_keeps_no_autograd_graph() -> None:
    weight = torch.ones(1, requires_grad=True)
    sums = Sums(CPU)
    logits = torch.tensor([[2.0, 1.0]]) * weight
    sums.add((weight * 2).sum(), ranks_of(logits, torch.tensor([0])))
    assert sums.reduce_later(ALONE)() == Metrics(2.0, 1.0, 1.0, 1)
    assert weight.grad is None


def test_bfloat16_losses_are_summed_in_double_precision() -> None:
    logits = torch.tensor([[2.0, 1.0]], dtype=torch.bfloat16)
    sums = Sums(CPU)
    for _ in range(1000):
        ranks = ranks_of(logits, torch.tensor([0]))
        sums.add(torch.tensor(1.0, dtype=torch.bfloat16), ranks)
    assert sums.reduce_later(ALONE)().loss == 1.0


def test_rows_are_the_outcomes_of_all_batches_even_with_tied_logits() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randint(-2, 3, (40, 6), generator=generator).to(torch.bfloat16)
    targets = torch.randint(0, 6, (40,), generator=generator)
    rows = OutcomeRows(CPU)
    for part in (slice(0, 16), slice(16, 16), slice(16, 40)):
        rows.add(logits[part], targets[part])
    expected = outcomes_of(targets.numpy(), logits.double().softmax(dim=1).numpy())
    for name, column in vars(rows.outcomes()).items():
        assert column.dtype == getattr(expected, name).dtype
        np.testing.assert_array_equal(column, getattr(expected, name))


def test_without_rows_there_are_no_outcomes() -> None:
    assert len(OutcomeRows(CPU).outcomes()) == 0
