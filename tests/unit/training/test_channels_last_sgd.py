"""SGD of channels-last weights: bit for bit that of PyTorch."""

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD

from train_pytorch_model.training.channels_last_sgd import ChannelsLastSGD


def trained(kind: type[SGD], layout: torch.memory_format, scale: float) -> list[Tensor]:
    """The weights, and their momentum, after three scaled steps, one of them not finite."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 5, 1))
    network.to(memory_format=torch.channels_last)
    groups = [{"params": list(network.parameters()), "weight_decay": 0.01}]
    optimizer = kind(groups, lr=0.1, momentum=0.9, nesterov=True, fused=True)
    for parameter in network.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
    scaler = GradScaler("cpu", init_scale=scale, enabled=scale != 1)
    for factor in (1.0, float("inf") if scale != 1 else 2.0, 3.0):
        scaler.scale(torch.zeros(()))
        for parameter in network.parameters():
            gradient = factor * torch.randn(parameter.shape)
            is_image = parameter.ndim == 4
            parameter.grad = gradient.contiguous(memory_format=layout) if is_image else gradient
        scaler.step(optimizer)
        scaler.update()
    parameters = [parameter.detach() for parameter in network.parameters()]
    return parameters + [state["momentum_buffer"] for state in optimizer.state.values()]


@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_weights_and_momentum_are_those_of_pytorch(
    layout: torch.memory_format, scale: float
) -> None:
    expected, found = trained(SGD, layout, scale), trained(ChannelsLastSGD, layout, scale)
    assert all(value.isfinite().all() for value in found)
    assert all(map(torch.equal, expected, found))


def test_parameters_without_gradients_stay() -> None:
    layer = nn.Linear(2, 2)
    before = layer.bias.clone()
    optimizer = ChannelsLastSGD(layer.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    for parameter in layer.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.ones_like(parameter)
    layer.weight.grad = torch.ones(2, 2)
    optimizer.step()
    assert torch.equal(layer.bias, before)
