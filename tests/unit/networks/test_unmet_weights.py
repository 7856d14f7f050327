"""Weights that meet no pixel are updated late, and then are what they would be."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import nn

from train_pytorch_model.networks.cpu_convolutions import adapt_to_cpu
from train_pytorch_model.training.channels_last_sgd import ChannelsLastSGD
from train_pytorch_model.training.optimizer import (
    delayed_of,
    make_optimizer,
    momentum_of,
    restore_delayed,
    set_learning_rate,
)

LAST = "2.weight"
RATES = (0.5, 0.4, 0.1, 0.3)


def network_of(dtype: torch.dtype = torch.float64) -> nn.Module:
    """On images of 1 x 1 the middle of each filter meets a pixel; of 2 x 2, all do."""
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 5, 3, padding=1))
    network = nn.Sequential(*layers).to(dtype)
    network.to(memory_format=torch.channels_last)
    adapt_to_cpu(network)
    return network


def optimizer_of(network: nn.Module, is_delayed: bool = True) -> ChannelsLastSGD:
    optimizer = make_optimizer(network)
    assert isinstance(optimizer, ChannelsLastSGD)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1  # so that it is seen
    for state in optimizer.state.values():
        state["momentum_buffer"].fill_(0.2)
    if is_delayed:
        optimizer.delay_unmet(network)
    return optimizer


def train(
    network: nn.Module,
    optimizer: ChannelsLastSGD,
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


def tensors_of(network: nn.Module, optimizer: ChannelsLastSGD) -> dict[str, torch.Tensor]:
    momentum = {f"momentum {name}": each for name, each in momentum_of(optimizer, network).items()}
    return {**network.state_dict(), **momentum}


@pytest.mark.parametrize("sides", [(1,), (1, 2), (2, 1), (1, 1)])
def test_late_updates_are_those_of_each_step(sides: Sequence[int]) -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, sides)
    train(expected, each_step, sides)
    late.apply_delayed()
    assert not delayed_of(late, found)
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
    assert delayed_of(optimizer, network).keys() == {"0.weight", LAST}


def test_larger_images_meet_weights_as_they_should_be() -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, (1,))
    train(expected, each_step, (1,))
    images = torch.ones(1, 3, 2, 2, dtype=torch.float64)
    with torch.inference_mode():
        torch.testing.assert_close(found(images), expected(images))
    assert not delayed_of(late, found)


def test_steps_that_wait_are_restored_bit_for_bit() -> None:
    network = network_of(torch.float32)
    optimizer = optimizer_of(network)
    train(network, optimizer, (1,), RATES[:2])
    tensors = copy.deepcopy(tensors_of(network, optimizer))
    steps = copy.deepcopy(delayed_of(optimizer, network))
    train(network, optimizer, (1,), RATES[2:])
    optimizer.apply_delayed()
    expected = copy.deepcopy(tensors_of(network, optimizer))

    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    for name, momentum in momentum_of(optimizer, network).items():
        momentum.copy_(tensors[f"momentum {name}"])
    restore_delayed(optimizer, network, steps)
    train(network, optimizer, (1,), RATES[2:])
    optimizer.apply_delayed()
    found = tensors_of(network, optimizer)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_an_optimizer_that_does_not_delay_applies_what_waits_in_a_checkpoint() -> None:
    found, expected = network_of(), network_of()
    late, each_step = optimizer_of(found), optimizer_of(expected, is_delayed=False)
    train(found, late, (1,))
    train(expected, each_step, (1,))
    steps = delayed_of(late, found)
    other = optimizer_of(found, is_delayed=False)
    other.state = late.state
    restore_delayed(other, found, steps)
    torch.testing.assert_close(tensors_of(found, other), tensors_of(expected, each_step))


def test_weights_that_are_loaded_do_not_get_the_steps_of_others() -> None:
    network = network_of()
    before = copy.deepcopy(network.state_dict())
    optimizer = optimizer_of(network)
    train(network, optimizer, (1,))
    network.load_state_dict(before)
    optimizer.apply_delayed()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
