"""The time budget of a run."""

import pytest

from train_pytorch_model.evaluation.time_budget import EpochTimes, budget_of, duration


def test_parts_add_up_to_the_total() -> None:
    budget = budget_of([EpochTimes(10.0, 4.0, 2.0, 1), EpochTimes(20.0, 5.0, 3.0, 1)], 50.0)
    assert (budget.computing_s, budget.waiting_s, budget.validation_s) == (21.0, 9.0, 5.0)
    assert budget.rest_s == 15.0
    assert budget.total_s == 50.0
    assert "30% of its time" in budget.verdict


def test_times_are_never_negative() -> None:
    budget = budget_of([EpochTimes(1.0, 1.5, 0.5, 1)], 1.0)
    assert (budget.computing_s, budget.rest_s) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("waiting_s", "verdict"),
    [
        (1.9, "Training was compute-bound: 19% of its time was spent waiting for images."),
        (
            2.0,
            "Training was input-bound: 20% of its time was spent waiting for images. More CPU cores"
            " help;",
        ),
    ],
)
def test_the_verdict_names_the_bottleneck(waiting_s: float, verdict: str) -> None:
    assert budget_of([EpochTimes(10.0, waiting_s, 1.0, 1)], 11.0).verdict.startswith(verdict)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (185, "3 min 05 s"),
        (7620, "2 h 07 min"),
        (360000, "100 h 00 min"),
    ],
)
def test_durations_are_human_readable(seconds: float, text: str) -> None:
    assert duration(seconds) == text
