"""Layer types that need special treatment."""

from collections.abc import Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def batch_norms(network: nn.Module) -> Iterator[_BatchNorm]:
    """All batch norms of a network."""
    return (module for module in network.modules() if isinstance(module, _BatchNorm))


def is_depthwise(module: nn.Module) -> bool:
    """Whether a module is a depthwise convolution: each filter sees a single channel."""
    return isinstance(module, nn.Conv2d) and module.groups == module.in_channels > 1
