"""Images made worse: the same ones each time, and no random state moves."""

import pytest
import torch

from train_pytorch_model.publishing.degraded import DEGRADATIONS, Degradation

FRAMES = torch.randint(256, (2, 20, 24, 3), dtype=torch.uint8)


@pytest.mark.parametrize("degradation", DEGRADATIONS, ids=lambda it: f"{it.name} {it.strength}")
def test_images_become_worse_in_the_same_way_each_time(degradation: Degradation) -> None:
    state = torch.get_rng_state()
    degraded = degradation(FRAMES, seed=3)
    assert (degraded.shape, degraded.dtype) == (FRAMES.shape, torch.uint8)
    assert not torch.equal(degraded, FRAMES)
    assert torch.equal(degraded, degradation(FRAMES, seed=3))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("side", [8, 33])
def test_images_of_any_size_can_be_degraded(side: int) -> None:
    frames = torch.full((1, side, 8, 3), 200, dtype=torch.uint8)
    for degradation in DEGRADATIONS:
        assert degradation(frames, seed=0).shape == frames.shape
