"""The weights of the epoch with the lowest validation loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from train_pytorch_model.loop.metrics import Metrics


@dataclass
class BestEpoch:
    """Keeps a copy on the CPU, so that it survives the epochs after it and costs no memory of the device."""

    epoch: int = 0
    """Counted from 1; 0 as long as no validation loss was finite."""
    metrics: Metrics = field(default_factory=lambda: Metrics(math.inf, 0.0, 0.0, 0))
    weights: dict[str, Tensor] = field(default_factory=dict)

    def observe(self, epoch: int, metrics: Metrics, network: nn.Module) -> None:
        """Take the network's weights if this epoch's validation loss is the lowest; False for NaN."""
        if metrics.loss < self.metrics.loss:
            self.epoch = epoch
            self.metrics = metrics
            self.weights = copied_to_cpu(network.state_dict())


def copied_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies that lie in memory as those read from a file do, so that they are saved as the same bytes.

    The strides of a dimension of one are free, and stay as they are where a tensor is made contiguous.
    """
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return {name: copy.flatten().view(copy.shape) for name, copy in copies.items()}
