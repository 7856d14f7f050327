"""Streams of randomness."""

import pytest

from train_pytorch_model.seeds import derive_seed


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64, -(10**40)])
def test_any_integer_gives_a_seed_that_every_library_takes(seed: int) -> None:
    assert 0 <= derive_seed(seed, "order", 3) < 2**63


def test_a_seed_is_the_same_on_every_machine() -> None:
    # A changed value changes every run that was ever made with the same parameters.
    assert derive_seed(1, "order", 0) == 8401410035462850704


def test_purposes_and_seeds_have_streams_of_their_own() -> None:
    seeds = {
        derive_seed(seed, purpose, epoch, index)
        for seed in (-1, 0, 1)
        for purpose in ("order", "augmentation")
        for epoch in range(10)
        for index in range(10)
    }
    assert len(seeds) == 3 * 2 * 10 * 10


def test_neighbouring_numbers_are_told_apart() -> None:
    assert derive_seed(1, "augmentation", 1, 12) != derive_seed(1, "augmentation", 11, 2)
