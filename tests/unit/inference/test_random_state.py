"""The caller's random numbers."""

import random

import numpy as np
import torch

from train_pytorch_model.inference.random_state import kept_random_state


def drawn() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), float(torch.rand(1))


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been_drawn() -> None:
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    first, second = drawn(), drawn()
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    assert drawn() == first
    with kept_random_state():
        torch.manual_seed(5)
        drawn()
    assert drawn() == second
