"""Seeds derived from the run's seed and a purpose."""

import pytest

from train_pytorch_model.config.seeds import derive_seed


@pytest.mark.parametrize("seed", [0, 1, -1, 2**64, -(10**40)])
def test_any_integer_gives_a_seed_valid_for_every_library(seed: int) -> None:
    assert 0 <= derive_seed(seed, "order", 3) < 2**63


def test_a_seed_is_the_same_on_every_machine() -> None:
    # If this value changes, no earlier run can be reproduced with the same parameters.
    assert derive_seed(1, "order", 0) == 8401410035462850704


def test_every_combination_of_seed_purpose_and_numbers_is_unique() -> None:
    seeds = {
        derive_seed(seed, purpose, epoch, index)
        for seed in (-1, 0, 1)
        for purpose in ("order", "augmentation")
        for epoch in range(10)
        for index in range(10)
    }
    assert len(seeds) == 3 * 2 * 10 * 10


def test_numbers_with_the_same_concatenation_give_different_seeds() -> None:
    assert derive_seed(1, "augmentation", 1, 12) != derive_seed(1, "augmentation", 11, 2)
