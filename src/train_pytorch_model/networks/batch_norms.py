"""Running statistics that follow the weights."""

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_pytorch_model.networks.shapes import is_depthwise

MAX_MOMENTUM = 0.3  # of running statistics, which then are of about three steps


def quicken_batch_norms(network: nn.Module, steps_per_epoch: int) -> None:
    """Let running statistics look back over two thirds of an epoch at most, or three steps.

    PyTorch's look back over ten steps, those of a MobileNetV3 over a hundred: in epochs of seven the weights
    have become others meanwhile, and validation sees a worse network than training. Networks of depthwise
    filters, of nine weights each, become others twice as fast.
    """
    epochs = 3.0 if any(map(is_depthwise, network.modules())) else 1.5
    momentum = min(MAX_MOMENTUM, epochs / steps_per_epoch)
    for module in network.modules():
        if isinstance(module, _BatchNorm) and module.momentum is not None:
            module.momentum = max(module.momentum, momentum)
