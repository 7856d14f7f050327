"""SGD of channels-last weights on a CPU."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD
from torch.optim.sgd import sgd

from train_pytorch_model.networks.small_maps import SmallMapConv2d
from train_pytorch_model.networks.unmet_weights import UnmetWeights


class ChannelsLastSGD(SGD):
    """Fused SGD that updates channels-last weights where they lie, bit for bit as `SGD` does.

    After `delay_unmet` that is so but for the last bits of weights that meet no pixel, whose steps
    wait and are applied as one. It takes gradients as they are then, without a scaler.

    PyTorch's fused kernel first copies what is not contiguous, such as their gradients. For a
    ResNet-18 a step takes 6 ms without that, instead of 13. Every parameter needs its momentum
    buffer from the beginning.
    """

    _unmet: Mapping[Tensor, UnmetWeights] = MappingProxyType({})
    """Of convolutions, what waits to be done to weights that meet no pixel."""

    def delay_unmet(self, network: nn.Module) -> None:
        """Let the steps of weights that meet no pixel wait: see `unmet_weights_of`."""
        unmet: dict[Tensor, UnmetWeights] = {}
        for layer in network.modules():
            if isinstance(layer, SmallMapConv2d) and layer.weight in self.state:
                layer.unmet = UnmetWeights(layer, self.state[layer.weight]["momentum_buffer"])
                unmet[layer.weight] = layer.unmet
        self._unmet = unmet

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        for unmet in self._unmet.values():
            unmet.met = None

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the parameters that have gradients."""
        assert closure is None, "losses are computed elsewhere"
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter in self._unmet:
                    decay, momentum = group["weight_decay"], group["momentum"]
                    self._unmet[parameter].step(group["lr"], decay, momentum)
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            sgd(
                [_in_memory_order(parameter, parameter) for parameter in parameters],
                [_in_memory_order(parameter.grad, parameter) for parameter in parameters],
                [
                    _in_memory_order(self.state[parameter]["momentum_buffer"], parameter)
                    for parameter in parameters
                ],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                momentum=group["momentum"],
                nesterov=group["nesterov"],
                dampening=0.0,
                maximize=False,
                fused=True,
                grad_scale=getattr(self, "grad_scale", None),  # set by a scaler of float16
                found_inf=getattr(self, "found_inf", None),
            )


def _in_memory_order(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return a view of a tensor in which its channels-last `parameter` would be contiguous."""
    if parameter.ndim != 4 or parameter.is_contiguous():
        return tensor
    return tensor.permute(0, 2, 3, 1)
