"""Convolutions as a CPU computes them fast and right."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.dry_runs import dry_run


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
    """Run depthwise convolutions in float32.

    Their bfloat16 gradients take oneDNN three times as long. On a CPU with AVX512-BF16 a training
    step of MobileNetV3 then takes 0.5 of the time, of EfficientNet-B0 0.6, of ConvNeXt 0.9:
    `tests.benchmarks.depthwise`.
    """
    for module in network.modules():
        if is_depthwise(module) and type(module) is nn.Conv2d:
            module.__class__ = Float32Conv2d  # replaces `forward` only; parameters and hooks stay


def keep_unseen_weights(network: nn.Module, height: int, width: int) -> None:
    """Zero the gradients of convolution weights that meet nothing but padding.

    With a stride of 2, only the middle of a 3 x 3 filter meets a 1 x 1 feature map, which a ResNet
    has for images of 16 px. oneDNN's bfloat16 leaves the other gradients uninitialized: 1e30, or
    NaN.
    """
    for convolution, (input_height, input_width) in convolutions_of(network, height, width):
        if max(convolution.stride) == 1:
            continue
        seen_rows = seen_part(convolution, 0, input_height)
        seen_columns = seen_part(convolution, 1, input_width)
        is_seen = seen_rows[:, None] & seen_columns  # (rows, columns) of a filter
        if not is_seen.all():
            convolution.weight.register_hook(  # type: ignore[no-untyped-call]
                _zero_unless(is_seen)
            )


def _zero_unless(is_seen: Tensor) -> Callable[[Tensor], Tensor]:
    def zero_unseen(gradient: Tensor) -> Tensor:
        return torch.where(is_seen, gradient, 0.0)

    return zero_unseen


def convolutions_of(
    network: nn.Module, height: int, width: int
) -> list[tuple[nn.Conv2d, tuple[int, int]]]:
    """Return the trainable convolutions, each with the height and width of its input."""
    sizes: list[tuple[nn.Conv2d, tuple[int, int]]] = []

    def record(module: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(module, nn.Conv2d)
        height, width = inputs[0].shape[-2:]
        sizes.append((module, (height, width)))

    with ExitStack() as hooks:
        for module in network.modules():
            # No subclass: timm has some that pad by themselves.
            if type(module) is nn.Conv2d and module.weight.requires_grad:
                hooks.callback(module.register_forward_pre_hook(record).remove)
        dry_run(network, 2, height, width)
    return sizes


def seen_part(convolution: nn.Conv2d, axis: int, length: int) -> Tensor:
    """Return which weights of a filter, along one axis, meet an input of this length somewhere.

    The tensor (kernel size,) is boolean.
    """
    assert isinstance(convolution.padding, tuple)
    size = convolution.kernel_size[axis]
    stride = convolution.stride[axis]
    padding = convolution.padding[axis]
    dilation = convolution.dilation[axis]
    span = dilation * (size - 1)  # from the first weight of a filter to its last
    starts = torch.arange(-padding, length + padding - span, stride)
    positions = starts[:, None] + dilation * torch.arange(size)  # (starts, kernel size)
    is_inside = (positions >= 0) & (positions < length)
    return is_inside.any(dim=0)
