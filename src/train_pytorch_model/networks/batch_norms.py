"""The running statistics of batch norms: that they follow the weights, or stay."""

import torch
from torch import Tensor, nn

from train_pytorch_model.networks.layers import batch_norms, is_depthwise

MAX_MOMENTUM = 0.3  # of running statistics, which then are of about three steps
KEPT = 0.0  # the momentum of statistics that stay


def quicken_batch_norms(network: nn.Module, steps_per_epoch: int) -> None:
    """Let running statistics look back over two thirds of an epoch at most, or three steps.

    PyTorch's look back over ten steps, those of a MobileNetV3 over a hundred: in epochs of seven the weights
    have become others meanwhile, and validation sees a worse network than training. Networks of depthwise
    filters, of nine weights each, become others twice as fast.
    """
    epochs = 3.0 if any(map(is_depthwise, network.modules())) else 1.5
    momentum = min(MAX_MOMENTUM, epochs / steps_per_epoch)
    for norm in batch_norms(network):
        if norm.momentum is not None:
            norm.momentum = max(norm.momentum, momentum)


def keep_statistics(network: nn.Module) -> None:
    """Have running statistics stay, for training to normalise by as well: see `set_training_mode`."""
    for norm in batch_norms(network):
        norm.momentum = KEPT


@torch.no_grad()
def blend_statistics(network: nn.Module, images: Tensor, share: float) -> None:
    """Move statistics that stay by a share, from 0 to 1, towards those of a batch of images.

    The network is in evaluation mode afterwards.
    """
    network.eval()
    norms = list(batch_norms(network))
    for norm in norms:
        norm.train()
        norm.momentum = share
    network(images)
    for norm in norms:
        norm.eval()
        norm.momentum = KEPT


def set_training_mode(network: nn.Module) -> None:
    """`network.train()`, but batch norms whose statistics stay normalise by them; frozen ones do, too."""
    network.train()
    for norm in batch_norms(network):
        if norm.momentum == KEPT or not norm.weight.requires_grad:
            norm.eval()


def running_statistics(network: nn.Module) -> Tensor:
    """A copy of all means and variances, one after the other; empty without a batch norm."""
    buffers = _statistics(network)
    return torch.cat([buffer.flatten() for buffer in buffers]) if buffers else torch.empty(0)


def set_running_statistics(network: nn.Module, values: Tensor) -> None:
    """Give batch norms what `running_statistics` has read, here or in another process."""
    buffers = _statistics(network)
    for buffer, own in zip(buffers, torch.split(values, [b.numel() for b in buffers]), strict=True):
        buffer.copy_(own.view_as(buffer))


def _statistics(network: nn.Module) -> list[Tensor]:
    return [
        buffer
        for norm in batch_norms(network)
        for buffer in (norm.running_mean, norm.running_var)
        if buffer is not None
    ]
