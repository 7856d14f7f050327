"""The estimated length of a run whose last epochs have larger images."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.logs import warnings_in

from train_pytorch_model.loop import epoch_view
from train_pytorch_model.loop.epoch_view import LONG_RUN_S, STEPS_TO_JUDGE, EpochView, RunLength, show_every
from train_pytorch_model.loop.metrics import Metrics
from train_pytorch_model.loop.passes import StepReport

STEPS = 20
REPORT = StepReport(step=10, lr=0.001, metrics=Metrics(1.0, 0.5, 1.0, 8), images_per_second=1.0)


class Said:
    """A progress bar that records what it is given."""

    def __init__(self) -> None:
        self.shown: tuple[str, ...] = ()

    def advance(self) -> None:
        pass

    def show(self, step: int, *facts: str) -> None:  # noqa: ARG002
        self.shown = facts


def after_ten_steps(
    monkeypatch: pytest.MonkeyPatch, step_s: float, pixels: list[int], waited_s: float = 0.0
) -> Said:
    """The output after ten of twenty steps of the first epoch; `pixels` has one entry per epoch.

    The clock advances by `step_s` per reading. Each step but the first waits `waited_s` for its images.
    """
    clock = itertools.count(step=step_s)
    monkeypatch.setattr(epoch_view, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    said: Any = Said()
    position: Any = SimpleNamespace(epoch=1, steps_done=0, waited_s=0.0, elapsed_s=1.0, times=[])
    loader: Any = SimpleNamespace(waited_s=0.0)
    length = RunLength(images=160, pixels=pixels, steps_per_epoch=STEPS, is_on_cpu=True)
    view = EpochView(said, loader, position, STEPS, length, lambda _: None)
    for _ in range(STEPS_TO_JUDGE):
        position.steps_done += 1
        loader.waited_s += waited_s if position.steps_done > 1 else 0.0
        view.after_step(torch.zeros(()))
    view.report(REPORT)
    assert isinstance(said, Said)
    return said


@pytest.mark.parametrize(
    ("print_frequency", "steps_per_epoch", "every"),
    [(10, 200, 10), (10, 75, 5), (10, 8, 1), (10, 1, 1), (7, 30, 1), (1000, 999, 50)],
)
def test_a_bar_is_updated_ten_times_an_epoch_and_with_every_log_line(
    print_frequency: int, steps_per_epoch: int, every: int
) -> None:
    assert show_every(print_frequency, steps_per_epoch) == every


def test_the_eta_of_a_run_accounts_for_larger_images_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    same = after_ten_steps(monkeypatch, 1.0, [100, 100])
    larger = after_ten_steps(monkeypatch, 1.0, [100, 300])
    (eta,) = (fact for fact in same.shown if fact.startswith("ETA"))
    (longer,) = (fact for fact in larger.shown if fact.startswith("ETA"))
    # Three clock readings in ten steps, so 0.3 s each; ten are left, then 20 or the equivalent of 60.
    assert (eta, longer) == ("ETA 3 s, run 9 s", "ETA 3 s, run 21 s")


def test_data_wait_does_not_grow_with_image_size(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = after_ten_steps(monkeypatch, 1.0, [100, 300, 300], waited_s=1 / 9)
    (eta,) = (fact for fact in waiting.shown if fact.startswith("ETA"))
    # Waiting is 0.1 s of a step's 0.3 s: 40 steps of 0.1 + 3 * 0.2 s are left after this epoch.
    assert eta == "ETA 3 s, run 31 s"


@pytest.mark.parametrize(("pixels", "is_long"), [([100, 100], False), ([100, 300], True)])
def test_a_long_run_on_a_cpu_is_warned_of(
    monkeypatch: pytest.MonkeyPatch, pixels: list[int], is_long: bool, caplog: pytest.LogCaptureFixture
) -> None:
    step_s = LONG_RUN_S / STEPS / 3 * (STEPS_TO_JUDGE - 1)  # two epochs of small images take two thirds of it
    after_ten_steps(monkeypatch, step_s, pixels)
    assert [
        text.startswith("At the speed of the first steps, 320 images") for text in warnings_in(caplog)
    ] == [True] * is_long


def test_data_wait_is_not_scaled_up_in_the_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step_s = LONG_RUN_S / STEPS / 3 * (STEPS_TO_JUDGE - 1)
    # Nine tenths of a step are waiting: the larger images of the second epoch take a fifth longer.
    after_ten_steps(monkeypatch, step_s, [100, 300], waited_s=step_s / (STEPS_TO_JUDGE - 1) * 0.9)
    assert warnings_in(caplog) == []
