"""The estimated length of a run whose last epochs have larger images."""

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.logs import warnings_in

from train_pytorch_model.machine.console import Bar
from train_pytorch_model.training import progress as progress_module
from train_pytorch_model.training.metrics import Metrics
from train_pytorch_model.training.progress import (
    LONG_RUN_S,
    STEPS_TO_JUDGE,
    EpochView,
    Pace,
    later_epochs_s,
    progress_of,
)
from train_pytorch_model.training.state import StepReport

STEPS = 20
REPORT = StepReport(step=10, lr=0.001, metrics=Metrics(1.0, 0.5, 1.0, 8), images_per_second=1.0)


class Shown(Bar):
    """A progress bar that keeps the facts shown last."""

    def show(self, step: int, *facts: str) -> None:  # noqa: ARG002
        FACTS[:] = facts


FACTS: list[str] = []


def plan_of(pixels: list[int], steps_per_epoch: int = STEPS) -> Any:
    """As much of a plan as the length of a run depends on; `pixels` has one entry per epoch."""
    return SimpleNamespace(
        framings=[SimpleNamespace(num_pixels=number) for number in pixels],
        steps_per_epoch=steps_per_epoch,
        config=SimpleNamespace(epochs=len(pixels)),
        inputs=SimpleNamespace(training=range(160)),
        world=SimpleNamespace(device=torch.device("cpu")),
    )


def after_ten_steps(
    monkeypatch: pytest.MonkeyPatch, step_s: float, pixels: list[int], waited_s: float = 0.0
) -> list[str]:
    """The facts after ten of twenty steps of the first epoch.

    The clock advances by `step_s` per reading. Each step but the first waits `waited_s` for its
    images.
    """
    clock = itertools.count(step=step_s)
    monkeypatch.setattr(progress_module, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    progress: Any = SimpleNamespace(epoch=1, steps_done=0, waited_s=0.0, elapsed_s=1.0, times=[])
    state: Any = SimpleNamespace(progress=progress)
    shown = EpochView(Shown(STEPS, "Epoch 1", 1, None), plan_of(pixels), state, STEPS)
    for step in range(1, STEPS_TO_JUDGE + 1):
        progress.steps_done += 1
        progress.waited_s += waited_s if step > 1 else 0.0
        shown.show(REPORT if step == STEPS_TO_JUDGE else None)
    return FACTS


def test_remaining_time_is_proportional_to_the_pixels() -> None:
    plan = plan_of([100, 100, 300], steps_per_epoch=2)
    computing, waiting = Pace(step_s=1.0, waited_s=0.0), Pace(step_s=1.0, waited_s=1.0)
    assert [later_epochs_s(plan, epoch, computing) for epoch in (1, 2, 3)] == [8.0, 6.0, 0.0]
    assert [later_epochs_s(plan, epoch, waiting) for epoch in (1, 2, 3)] == [4.0, 2.0, 0.0]


def test_the_eta_of_a_run_accounts_for_larger_images_to_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (eta,) = (
        fact for fact in after_ten_steps(monkeypatch, 1.0, [100, 100]) if fact.startswith("ETA")
    )
    (longer,) = (
        fact for fact in after_ten_steps(monkeypatch, 1.0, [100, 300]) if fact.startswith("ETA")
    )
    # Three clock readings in ten steps, so 0.3 s each; ten are left, then 20 or the equivalent of
    # 60.
    assert (eta, longer) == ("ETA 3 s, run 9 s", "ETA 3 s, run 21 s")


def test_data_wait_does_not_grow_with_image_size(monkeypatch: pytest.MonkeyPatch) -> None:
    waiting = after_ten_steps(monkeypatch, 1.0, [100, 300, 300], waited_s=1 / 9)
    (eta,) = (fact for fact in waiting if fact.startswith("ETA"))
    # Waiting is 0.1 s of a step's 0.3 s: 40 steps of 0.1 + 3 * 0.2 s are left after this epoch.
    assert eta == "ETA 3 s, run 31 s"


@pytest.mark.parametrize(("pixels", "is_long"), [([100, 100], False), ([100, 300], True)])
def test_a_long_run_on_a_cpu_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
    pixels: list[int],
    is_long: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    step_s = (
        LONG_RUN_S / STEPS / 3 * (STEPS_TO_JUDGE - 1)
    )  # two epochs of small images take two thirds of it
    after_ten_steps(monkeypatch, step_s, pixels)
    assert [
        text.startswith("At the speed of the first steps, 320 images")
        for text in warnings_in(caplog)
    ] == [True] * is_long


def test_data_wait_is_not_scaled_up_in_the_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    step_s = LONG_RUN_S / STEPS / 3 * (STEPS_TO_JUDGE - 1)
    # Nine tenths of a step are waiting: the larger images of the second epoch take a fifth longer.
    after_ten_steps(monkeypatch, step_s, [100, 300], waited_s=step_s / (STEPS_TO_JUDGE - 1) * 0.9)
    assert warnings_in(caplog) == []


@pytest.mark.parametrize(
    ("images_done", "text"),
    [
        (0, "at the beginning of epoch 2"),
        (8, "in epoch 2, after 8 of 15 images"),
        (15, "in epoch 2, after 15 of 15 images"),
        # One of 16 has turned out to be unreadable since it was counted.
        (16, "in epoch 2, after 15 of 15 images"),
    ],
)
def test_a_resumed_run_says_how_far_it_is(images_done: int, text: str) -> None:
    state: Any = SimpleNamespace(
        progress=SimpleNamespace(epoch=2, images_done=images_done),
        images={"training": range(15)},
        is_over=False,
    )
    assert progress_of(state) == text
