"""Convolutions as a CPU computes them fast and right."""

import torch
from torch import Tensor, nn

from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.small_maps import SmallMapConv2d, is_plain


class Float32Conv2d(SmallMapConv2d):
    """A convolution that computes in float32 and returns the dtype of its input."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float()).to(input.dtype)


def adapt_to_cpu(network: nn.Module) -> None:
    """Work around what CPUs compute wrongly or slowly; weights and their names stay the same.

    Depthwise convolutions run in float32: their bfloat16 gradients take oneDNN three times as long.
    On a CPU with AVX512-BF16 a training step of MobileNetV3 then takes 0.5 of the time, of
    EfficientNet-B0 0.6, of ConvNeXt 0.9: `tests.benchmarks.depthwise`.
    """
    for module in network.modules():
        if is_plain(module):  # replaces `forward` only; parameters and hooks stay
            module.__class__ = Float32Conv2d if is_depthwise(module) else SmallMapConv2d
