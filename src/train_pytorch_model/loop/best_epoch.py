"""The weights of the epoch with the lowest validation loss."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor, nn

from train_pytorch_model.loop.metrics import Metrics


@dataclass
class BestEpoch:
    """Keeps a copy on the CPU: later epochs do not change it, and it costs no device memory."""

    epoch: int = 0
    """Counted from 1; 0 until a validation loss has been finite."""
    metrics: Metrics = field(default_factory=lambda: Metrics(math.inf, 0.0, 0.0, 0))
    weights: dict[str, Tensor] = field(default_factory=dict)

    def observe(self, epoch: int, metrics: Metrics, network: nn.Module) -> None:
        """Keep the network's weights if this epoch's validation loss is the lowest so far; NaN never is."""
        if metrics.loss < self.metrics.loss:
            self.epoch = epoch
            self.metrics = metrics
            self.weights = copy_to_cpu(network.state_dict())


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies with the strides of tensors read from a file, so that they are saved as the same bytes.

    The strides of dimensions of size one are arbitrary, and `contiguous` leaves them as they are.
    """
    copies = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    return {name: copy.flatten().view(copy.shape) for name, copy in copies.items()}
