"""Layers that are treated in a way of their own."""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norms(network: nn.Module) -> Iterator[_BatchNorm]:
    """All batch norms of a network."""
    return (module for module in network.modules() if isinstance(module, _BatchNorm))


def is_depthwise(module: nn.Module) -> bool:
    """Whether it is a convolution whose filters see one channel each."""
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1
