"""Convolutions as a CPU computes them fast."""

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
    """Run depthwise convolutions in float32: their bfloat16 gradients take oneDNN three times as
    long.

    On a CPU with AVX512-BF16 a training step of MobileNetV3 then takes 0.5 of the time, of
    EfficientNet-B0 0.6, of ConvNeXt 0.9: `tests.benchmarks.depthwise`.
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
    for convolution, size in convolutions_of(network, height, width):
        if max(convolution.stride) > 1:
            rows, columns = (
                seen_part(convolution, axis, length) for axis, length in enumerate(size)
            )
            if not (seen := rows[:, None] & columns).all():
                convolution.weight.register_hook(  # type: ignore[no-untyped-call]
                    lambda gradient, seen=seen: torch.where(seen, gradient, 0.0)
                )


def convolutions_of(
    network: nn.Module, height: int, width: int
) -> list[tuple[nn.Conv2d, tuple[int, int]]]:
    """The trainable convolutions, each with the height and width of its input."""
    sizes: list[tuple[nn.Conv2d, tuple[int, int]]] = []

    def record(module: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(module, nn.Conv2d)
        sizes.append((module, (inputs[0].shape[-2], inputs[0].shape[-1])))

    with ExitStack() as hooks:
        for module in network.modules():
            # No subclass: timm has some that pad by themselves.
            if type(module) is nn.Conv2d and module.weight.requires_grad:
                hooks.callback(module.register_forward_pre_hook(record).remove)
        dry_run(network, 2, height, width)
    return sizes


def seen_part(convolution: nn.Conv2d, axis: int, length: int) -> Tensor:
    """(kernel size,), bool: which weights of a filter, along one axis, meet the input somewhere."""
    assert isinstance(convolution.padding, tuple)
    size, stride = convolution.kernel_size[axis], convolution.stride[axis]
    padding, dilation = convolution.padding[axis], convolution.dilation[axis]
    reach = dilation * (size - 1)
    starts = torch.arange(-padding, length + padding - reach, stride)
    positions = starts[:, None] + dilation * torch.arange(size)
    return ((positions >= 0) & (positions < length)).any(dim=0)
