"""Batch norms: how fast their running statistics track the weights, and how to freeze them."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

MAX_MOMENTUM = 0.3  # of running statistics, which then average about three steps
OF_LAST_LAYER = 2  # parameters; some networks of timm have others that are never trained
FROZEN = 0.0  # the momentum that marks frozen statistics


def batch_norms(network: nn.Module) -> Iterator[_BatchNorm]:
    """Yield all batch norms of a network."""
    return (module for module in network.modules() if isinstance(module, _BatchNorm))


def is_depthwise(module: nn.Module) -> bool:
    """Return whether a module is a depthwise convolution, whose filters see a single channel."""
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1


def raise_momentum(network: nn.Module, steps_per_epoch: int) -> None:
    """Raise the momentum of running statistics, which then average no more than a part of an epoch.

    That is two thirds of an epoch, but at least three steps. PyTorch's default averages
    ten steps, MobileNetV3's a hundred: with seven steps an epoch the weights have moved on by then,
    and validation sees a worse network than training. Networks with depthwise convolutions, of nine
    weights a filter, change twice as fast: for them it is a third of an epoch.
    """
    has_depthwise = any(map(is_depthwise, network.modules()))
    averages_per_epoch = 3.0 if has_depthwise else 1.5
    momentum = min(MAX_MOMENTUM, averages_per_epoch / steps_per_epoch)
    for norm in batch_norms(network):
        if norm.momentum is not None:
            norm.momentum = max(norm.momentum, momentum)


def freeze_statistics(network: nn.Module) -> None:
    """Freeze the running statistics, by which training then normalizes (`set_training_mode`)."""
    for norm in batch_norms(network):
        norm.momentum = FROZEN


@torch.no_grad()
def blend_statistics(network: nn.Module, images: Tensor, fraction: float) -> None:
    """Move frozen statistics of trained norms by a fraction, 0 to 1, towards those of images.

    Those before filters that are not trained stay: the filters could not adapt, which costs up to 7
    points. Ends in evaluation mode.
    """
    network.eval()
    norms = [
        norm for norm in batch_norms(network) if norm.weight is None or norm.weight.requires_grad
    ]
    for norm in norms:
        norm.train()
        norm.momentum = fraction
    if norms:
        network(images)
    network.eval()
    freeze_statistics(network)


def set_training_mode(network: nn.Module) -> None:
    """Set the training mode, in which what is frozen computes as in evaluation.

    That is batch norms with frozen statistics, and all of a network whose last layer alone is
    trained: with dropout its features would differ from epoch to epoch, and the filters could not
    learn from that.
    """
    num_trained = sum(parameter.requires_grad for parameter in network.parameters())
    network.train(num_trained > OF_LAST_LAYER)
    for norm in batch_norms(network):
        if norm.momentum == FROZEN:
            norm.eval()


def running_statistics(network: nn.Module) -> Tensor:
    """Return a copy of all running means and variances (N,); empty without batch norms."""
    buffers = _statistics(network)
    if not buffers:
        return torch.empty(0)
    return torch.cat([buffer.flatten() for buffer in buffers])


def set_running_statistics(network: nn.Module, values: Tensor) -> None:
    """Set the running statistics to what `running_statistics` returned, here or elsewhere."""
    buffers = _statistics(network)
    sizes = [buffer.numel() for buffer in buffers]
    for buffer, value in zip(buffers, torch.split(values, sizes), strict=True):
        buffer.copy_(value.view_as(buffer))


def _statistics(network: nn.Module) -> list[Tensor]:
    buffers = []
    for norm in batch_norms(network):
        if norm.running_mean is not None:
            buffers.append(norm.running_mean)
        if norm.running_var is not None:
            buffers.append(norm.running_var)
    return buffers
