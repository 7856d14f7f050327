"""Changes to a network for training on a CPU, where oneDNN computes it."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.shapes import inputs_of_convolutions


class Float32Conv2d(nn.Conv2d):
    """A convolution that computes in float32 and returns the dtype of its input."""

    def forward(self, input: Tensor) -> Tensor:
        with torch.autocast("cpu", enabled=False):
            return super().forward(input.float()).to(input.dtype)


def adapt_to_cpu(network: nn.Module, height: int, width: int) -> None:
    """Work around what CPUs compute wrongly or slowly; weights and their names stay the same."""
    keep_unseen_weights(network, height, width)
    compute_depthwise_in_float32(network)


def compute_depthwise_in_float32(network: nn.Module) -> None:
    """Run depthwise convolutions in float32: their bfloat16 gradients take oneDNN three times as long.

    On a CPU with AVX512-BF16 a training step of MobileNetV3 then takes 0.5 of the time, of EfficientNet-B0
    0.6, of ConvNeXt 0.9: `tests.benchmarks.depthwise`.
    """
    for module in network.modules():
        if is_depthwise(module) and type(module) is nn.Conv2d:
            module.__class__ = Float32Conv2d  # replaces `forward` only; parameters and hooks stay


def keep_unseen_weights(network: nn.Module, height: int, width: int) -> None:
    """Zero the gradients of convolution weights that meet nothing but padding.

    With a stride of 2, only the middle of a 3 x 3 filter meets a 1 x 1 feature map, which a ResNet has for
    images of 16 px. oneDNN's bfloat16 leaves the other gradients uninitialized: 1e30, or NaN.
    """
    for convolution, size in inputs_of_convolutions(network, height, width):
        if max(convolution.stride) > 1:
            seen_by_axis = [_seen(convolution, axis, length) for axis, length in enumerate(size)]
            seen = seen_by_axis[0][:, None] & seen_by_axis[1]
            if not seen.all():
                convolution.weight.register_hook(_zero_unless(seen))  # type: ignore[no-untyped-call]


def _seen(convolution: nn.Conv2d, axis: int, length: int) -> Tensor:
    """(kernel size,), bool: which weights of a filter, along one axis, meet the input somewhere."""
    assert isinstance(convolution.padding, tuple)
    size, stride = convolution.kernel_size[axis], convolution.stride[axis]
    padding, dilation = convolution.padding[axis], convolution.dilation[axis]
    reach = dilation * (size - 1)
    starts = torch.arange(-padding, length + padding - reach, stride)
    positions = starts[:, None] + dilation * torch.arange(size)
    return ((positions >= 0) & (positions < length)).any(dim=0)


def _zero_unless(seen: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda gradient: torch.where(seen, gradient, 0.0)
