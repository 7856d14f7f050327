"""The agreement of all processes after a step: non-finite losses, due checkpoints, stop signals."""

import pytest
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.training import agreement
from train_pytorch_model.training.agreement import Agreed, Agreement

CPU = torch.device("cpu")
FINE = torch.tensor(1.5)


class Told(World):
    """One of two processes; the other always reports the same."""

    other = (0.0, 0.0, 0.0)

    def max(self, values: Tensor) -> Tensor:
        return torch.maximum(values, torch.tensor(self.other))


def one_of_two(*other: float) -> Agreement:
    world = Told(0, 2, 0, 2, CPU)
    type(world).other = other or (0.0, 0.0, 0.0)  # type: ignore[assignment]
    return Agreement(world)


@pytest.mark.parametrize(
    ("loss_sum", "is_due", "stop", "agreed"),
    [
        (1.5, False, 0, Agreed()),
        (1.5, True, 0, Agreed(is_due=True)),
        (1.5, False, 15, Agreed(stop=15)),
        (float("nan"), False, 0, Agreed(is_finite=False)),
        (float("inf"), True, 2, Agreed(is_finite=False, is_due=True, stop=2)),
        (-float("inf"), False, 0, Agreed(is_finite=False)),
    ],
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_reports_of_one_process_are_agreed(
    loss_sum: float, is_due: bool, stop: int, agreed: Agreed, is_alone: bool
) -> None:
    these = Agreement(World(0, 1, 0, 1, CPU)) if is_alone else one_of_two()
    assert these.exchange(torch.tensor(loss_sum, requires_grad=True), is_due, stop) == agreed


def test_reports_of_the_other_process_count_equally() -> None:
    assert one_of_two(1.0, 0.0, 0.0).exchange(FINE, is_due=False, stop=0) == Agreed(is_finite=False)
    assert one_of_two(0.0, 1.0, 0.0).exchange(FINE, is_due=False, stop=0) == Agreed(is_due=True)
    assert one_of_two(0.0, 0.0, 15.0).exchange(FINE, is_due=False, stop=2) == Agreed(stop=15)


def test_on_a_cpu_no_answer_is_pending_at_the_end() -> None:
    these = one_of_two(0.0, 0.0, 15.0)
    these.exchange(FINE, is_due=False, stop=0)
    assert these.finish() == Agreed()


def test_on_a_gpu_answers_come_a_step_late_and_a_bad_loss_is_reported_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agreement, "read_later", lambda values: values.flatten().tolist)
    alone = Agreement(World(0, 1, 0, 1, torch.device("cuda", 0)))
    bad = torch.tensor(float("nan"))
    assert alone.exchange(FINE, is_due=True, stop=0) == Agreed()
    assert alone.exchange(FINE, is_due=True, stop=0) == Agreed(is_due=True)
    assert alone.exchange(bad, is_due=False, stop=0) == Agreed()  # requested twice, answered once
    assert not alone.exchange(bad, is_due=False, stop=0).is_finite
    # Rolled back to the last good state: the answer for the step after the bad one is discarded.
    assert alone.exchange(FINE, is_due=False, stop=15) == Agreed()
    assert alone.finish() == Agreed(stop=15)
    assert alone.finish() == Agreed()


def test_a_gpu_saves_no_state_after_a_non_finite_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "read_later", lambda values: values.flatten().tolist)
    alone = Agreement(World(0, 1, 0, 1, torch.device("cuda", 0)))
    alone.exchange(FINE, is_due=True, stop=0)
    answer = alone.exchange(torch.tensor(float("nan")), is_due=False, stop=0)
    assert answer == Agreed(is_finite=False, is_due=True)
    assert (
        alone.exchange(FINE, is_due=False, stop=0) == Agreed()
    )  # once: the learning rate is halved once
    assert alone.finish() == Agreed()
