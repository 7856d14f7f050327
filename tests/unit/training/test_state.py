"""The epoch after which training stops."""

import math

import pytest

from train_pytorch_model.training.state import patience_spent

NAN, INF = math.nan, math.inf


def stops_after(patience: int, losses: list[float]) -> int | None:
    """The epoch, counted from 1, after which patience is exhausted; None if it never is."""
    return next((n for n in range(len(losses) + 1) if patience_spent(losses[:n]) >= patience), None)


@pytest.mark.parametrize(
    ("patience", "losses", "epoch"),
    [
        pytest.param(3, [1.0, 0.9, 0.9, 0.95, 0.95], 5, id="the docstring's example"),
        pytest.param(1, [1.0, 1.0], 2, id="an equal loss is not lower"),
        pytest.param(1, [3.0, 2.0, 1.0, 0.5], None, id="always lower"),
        pytest.param(
            2, [1.0, 2.0, 1.5, 2.0, 1.5, 2.0], None, id="lower than the previous epoch resets it"
        ),
        pytest.param(2, [0.1, 2.0, 3.0], 3, id="two in a row"),
        pytest.param(3, [0.1, 0.2, 0.3, 0.25, 0.3, 0.4, 0.5], 7, id="restarted by a lower loss"),
        pytest.param(1, [5.0], None, id="the first epoch has no predecessor"),
        pytest.param(3, [1.0, 1.1, 1.2, 1.1], None, id="one short of patience"),
    ],
)
def test_patience_ends_on_the_exact_epoch(
    patience: int, losses: list[float], epoch: int | None
) -> None:
    assert stops_after(patience, losses) == epoch


@pytest.mark.parametrize(
    ("patience", "losses", "epoch"),
    [
        pytest.param(2, [NAN, NAN], 2, id="NaN from the first epoch"),
        pytest.param(3, [1.0, NAN, NAN, NAN], 4, id="NaN from the second"),
        pytest.param(
            2, [1.0, NAN, 0.9, NAN, 0.8], None, id="compared with the last finite loss, lower"
        ),
        pytest.param(2, [1.0, NAN, 1.1], 3, id="compared with the last finite loss, higher"),
        pytest.param(2, [NAN, 1.0, NAN], None, id="the first finite loss counts as lower"),
        pytest.param(1, [INF], 1, id="infinity is never lower"),
        pytest.param(2, [1.0, INF, 1.5], 3, id="infinity is not compared with"),
        pytest.param(2, [1.0, INF, 0.5], None, id="lower than before infinity"),
    ],
)
def test_nan_and_infinity_count_towards_patience(
    patience: int, losses: list[float], epoch: int | None
) -> None:
    assert stops_after(patience, losses) == epoch


def test_a_lower_loss_resets_the_count() -> None:
    assert patience_spent([1.0, 2.0, 3.0]) == 2
    assert patience_spent([1.0, 2.0, 3.0, 2.5]) == 0
