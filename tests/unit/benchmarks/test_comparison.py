"""How the comparison of recipes judges: no image is judged by an epoch that it helped to choose."""

import numpy as np
import pytest
from tests.benchmarks.accuracy.comparison import Epoch, Keep, kept


def epoch_of(losses: list[float]) -> Epoch:
    return Epoch(np.array(losses), np.array(losses) < 1)


def halves(num_images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(num_images)
    return order[::2], order[1::2]


@pytest.mark.parametrize("keep", ["lowest loss", "highest top-1"])
def test_each_half_is_judged_by_the_best_epoch_of_the_other_half(keep: Keep) -> None:
    one, other = halves(10, seed=3)
    losses = np.full((2, 10), 2.0)
    losses[0, one] = 0.1  # the first epoch is good for one half, the second for the other
    losses[1, other] = 0.1
    final = kept([epoch_of(row.tolist()) for row in losses], keep, seed=3)
    assert (final.losses == 2.0).all()
    assert not final.hits.any()


@pytest.mark.parametrize(
    ("keep", "expected"), [("last", 3.0), ("lowest loss", 0.9), ("highest top-1", 0.99)]
)
def test_the_last_or_the_best_epoch_is_kept(keep: Keep, expected: float) -> None:
    mixed = [0.9, 0.9, 0.9, 0.9]
    all_right = [0.99, 0.99, 0.99, 0.99]
    epochs = [epoch_of(mixed), epoch_of(all_right), epoch_of([3.0, 3.0, 3.0, 3.0])]
    epochs[0] = Epoch(epochs[0].losses, np.array([True, False, False, True]))
    assert set(kept(epochs, keep, seed=1).losses.tolist()) == {expected}
