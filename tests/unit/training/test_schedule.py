"""The learning-rate schedule: warmup and polynomial decay."""

import pytest

from train_pytorch_model.training.schedule import PolynomialSchedule


@pytest.mark.parametrize(
    ("warmup_steps", "total_steps", "expected"),
    [
        pytest.param(0, 4, [1.0, 0.5625, 0.25, 0.0625], id="decay only"),
        pytest.param(
            2, 6, [0.5, 1.0, 1.0, 0.5625, 0.25, 0.0625], id="warmup, then decay from the peak"
        ),
        pytest.param(4, 5, [0.25, 0.5, 0.75, 1.0, 1.0], id="one step of decay"),
        pytest.param(3, 3, [1 / 3, 2 / 3, 1.0], id="warmup as long as the run"),
        pytest.param(8, 2, [0.125, 0.25], id="warmup longer than the run is never finished"),
        pytest.param(0, 1, [1.0], id="a single step"),
        pytest.param(1, 1, [1.0], id="a single step of warmup"),
    ],
)
def test_learning_rate_of_every_step(
    warmup_steps: int, total_steps: int, expected: list[float]
) -> None:
    schedule = PolynomialSchedule(1.0, warmup_steps, total_steps)
    assert [schedule(step) for step in range(total_steps)] == pytest.approx(expected, rel=1e-12)


def test_learning_rates_are_proportional_to_the_peak() -> None:
    one, eight = PolynomialSchedule(0.001, 3, 10), PolynomialSchedule(0.008, 3, 10)
    assert [eight(step) for step in range(10)] == pytest.approx(
        [8 * one(step) for step in range(10)]
    )


def test_the_learning_rate_is_zero_one_step_after_the_last() -> None:
    assert PolynomialSchedule(0.1, 2, 6)(6) == 0


def test_no_step_of_a_run_has_a_learning_rate_of_zero() -> None:
    schedule = PolynomialSchedule(0.1, 5, 1000)
    assert min(schedule(step) for step in range(1000)) > 0
