"""Weights that meet no pixel are updated late, and then are what they would be."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.networks.small_maps import unmet_weights_of
from train_pytorch_model.training.optimizer import (
    delayed_of,
    make_optimizer,
    momentum_of,
    restore_delayed,
    set_learning_rate,
)

LAST = "2.weight"
RATES = (0.5, 0.4, 0.1, 0.3)


def network_of(dtype: torch.dtype = torch.float64, size: int = 3) -> nn.Module:
    """On images of 1 x 1 the middle of each filter meets a pixel; of 2 x 2, up to 3 x 3 of it."""
    torch.manual_seed(0)
    padding = size // 2
    layers = (
        nn.Conv2d(3, 4, size, padding=padding),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 5, size, padding=padding),
    )
    network = nn.Sequential(*layers).to(dtype)
    network.to(memory_format=torch.channels_last)
    adapt_to_cpu(network)
    return network


def optimizer_of(network: nn.Module, is_delayed: bool = True) -> Optimizer:
    optimizer = make_optimizer(network, delays_unmet=is_delayed)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1  # so that it is seen
    for state in optimizer.state.values():
        state["momentum_buffer"].fill_(0.2)
    return optimizer


def apply_delayed(network: nn.Module) -> None:
    for unmet in unmet_weights_of(network).values():
        unmet.apply()


def train(
    network: nn.Module,
    optimizer: Optimizer,
    sides: Sequence[int],
    rates: Sequence[float] = RATES,
) -> None:
    """Take steps, each on images of all these sizes."""
    for step, rate in enumerate(rates):
        set_learning_rate(optimizer, rate)
        for side in sides:
            generator = torch.Generator().manual_seed(10 * step + side)
            images = torch.randn(2, 3, side, side, generator=generator, dtype=torch.float64)
            network(images.to(next(network.parameters()).dtype)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def tensors_of(network: nn.Module, optimizer: Optimizer) -> dict[str, torch.Tensor]:
    momentum = {f"momentum {name}": each for name, each in momentum_of(optimizer, network).items()}
    return {**network.state_dict(), **momentum}


@pytest.mark.parametrize("sides", [(1,), (1, 2), (2, 1), (1, 1)])
def test_late_updates_are_those_of_each_step(sides: Sequence[int]) -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, sides)
    train(expected, each_step, sides)
    apply_delayed(found)
    assert not delayed_of(found)
    torch.testing.assert_close(tensors_of(found, late), tensors_of(expected, each_step))


def test_weights_that_meet_no_pixel_stay_until_they_are_needed() -> None:
    network = network_of()
    before = network.get_parameter(LAST).detach().clone()
    optimizer = optimizer_of(network)
    train(network, optimizer, (1,))
    changed = network.get_parameter(LAST).detach() != before
    assert changed[:, :, 1, 1].any()
    changed[:, :, 1, 1] = False
    assert not changed.any()
    assert delayed_of(network).keys() == {"0.weight", LAST}


def test_larger_images_meet_weights_as_they_should_be() -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, (1,))
    train(expected, each_step, (1,))
    images = torch.ones(1, 3, 2, 2, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(found(images), expected(images))
    assert not delayed_of(found)


@pytest.mark.parametrize("side", [1, 2])
def test_steps_that_wait_are_restored_bit_for_bit(side: int) -> None:
    """Whatever images have come in between, of which some met the weights whose steps wait."""
    network = network_of(torch.float32, size=5)
    optimizer = optimizer_of(network)
    train(network, optimizer, (1,), RATES[:2])
    tensors = copy.deepcopy(tensors_of(network, optimizer))
    steps = copy.deepcopy(delayed_of(network))
    train(network, optimizer, (side,), RATES[2:])
    apply_delayed(network)
    expected = copy.deepcopy(tensors_of(network, optimizer))

    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    for name, momentum in momentum_of(optimizer, network).items():
        momentum.copy_(tensors[f"momentum {name}"])
    restore_delayed(optimizer, network, steps)
    train(network, optimizer, (side,), RATES[2:])
    apply_delayed(network)
    found = tensors_of(network, optimizer)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_an_optimizer_that_does_not_delay_applies_what_waits_in_a_checkpoint() -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, (1,))
    train(expected, each_step, (1,))
    steps = delayed_of(found)
    other = network_of()
    other.load_state_dict(found.state_dict())
    restored = optimizer_of(other, is_delayed=False)
    for name, momentum in momentum_of(restored, other).items():
        momentum.copy_(momentum_of(late, found)[name])
    restore_delayed(restored, other, steps)
    torch.testing.assert_close(tensors_of(other, restored), tensors_of(expected, each_step))


def test_weights_that_are_loaded_do_not_get_the_steps_of_others() -> None:
    network = network_of()
    before = copy.deepcopy(network.state_dict())
    optimizer = optimizer_of(network)
    train(network, optimizer, (1,))
    network.load_state_dict(before)
    apply_delayed(network)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
