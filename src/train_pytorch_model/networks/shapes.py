"""What images of one size need of a network, by dry runs without values; what CPUs compute wrongly
or slowly.

A dry run takes a few milliseconds and no memory.
"""

import itertools
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from train_pytorch_model.networks.batch_norms import is_depthwise, set_training_mode
from train_pytorch_model.words.errors import ParameterError, parameter


class WithoutMemory(TorchFunctionMode):
    """Within it, layers get tensors on the meta device, and draw no numbers; RegNet computes with
    others."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        is_storage = func in (torch.empty, torch.ones, torch.zeros)
        return func(*args, **{**(kwargs or {}), **({"device": "meta"} if is_storage else {})})


def min_local_batch(network: nn.Module, height: int, width: int) -> int:
    """The fewest images of a step: 2 for batch norm at 1 x 1.

    Raises `ParameterError` for too small ones.
    """
    try:
        try:
            _dry_run(network, 1, height, width)
        except ValueError:  # "Expected more than 1 value per channel when training"
            _dry_run(network, 2, height, width)
            return 2
    except RuntimeError as error:
        raise ParameterError(
            f"Images of {height} x {width} px are too small for a {type(network).__name__}"
            f" ({' '.join(str(error).split())[:120]}). In init-model, name a larger"
            f" {parameter('image_size')}, and no smaller {parameter('training_size')}."
        ) from error
    return 1


def width_of_features(network: nn.Module, head: str, height: int, width: int) -> int | None:
    """The number of features that the last layer, `head`, maps to logits; None if it is not the
    last step.
    """
    seen: list[Tensor] = []
    layer = network.get_submodule(head)
    with layer.register_forward_hook(lambda _, inputs, output: seen.extend((inputs[0], output))):
        logits = _dry_run(network, 2, height, width)
    return seen[0].shape[1] if len(seen) == 2 and seen[0].ndim == 2 and seen[1] is logits else None


def count_first_parameters(network: nn.Module, height: int, width: int, share: float) -> int:
    """How many of the network's parameters, in their order, belong to its first layers.

    Those are the convolutions and linear layers with up to this share of the multiplications, and
    norms.
    """
    costs: dict[nn.Module, int] = {}

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        costs[layer] = layer.weight[0].numel() * output.numel()  # a filter for each value

    with ExitStack() as hooks:
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                hooks.callback(layer.register_forward_hook(count).remove)
        _dry_run(network, 2, height, width)
    done, limit = itertools.accumulate(costs.values()), share * sum(costs.values())
    others = {layer.weight for layer, cost in zip(costs, done, strict=True) if cost > limit}
    return sum(
        1 for _ in itertools.takewhile(lambda each: each not in others, network.parameters())
    )


def _dry_run(network: nn.Module, num_images: int, height: int, width: int) -> Tensor:
    """Return the logits, without values."""
    tensors = (*network.named_parameters(), *network.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors}
    set_training_mode(network)
    images = torch.empty(num_images, 3, height, width, device="meta")
    logits: Tensor = torch.func.functional_call(network, shapes, (images,))
    return logits


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
    for convolution, size in _convolutions(network, height, width):
        if max(convolution.stride) > 1:
            rows, columns = (_seen(convolution, axis, length) for axis, length in enumerate(size))
            if not (seen := rows[:, None] & columns).all():
                convolution.weight.register_hook(  # type: ignore[no-untyped-call]
                    lambda gradient, seen=seen: torch.where(seen, gradient, 0.0)
                )


def _convolutions(
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
        _dry_run(network, 2, height, width)
    return sizes


def _seen(convolution: nn.Conv2d, axis: int, length: int) -> Tensor:
    """(kernel size,), bool: which weights of a filter, along one axis, meet the input somewhere."""
    assert isinstance(convolution.padding, tuple)
    size, stride = convolution.kernel_size[axis], convolution.stride[axis]
    padding, dilation = convolution.padding[axis], convolution.dilation[axis]
    reach = dilation * (size - 1)
    starts = torch.arange(-padding, length + padding - reach, stride)
    positions = starts[:, None] + dilation * torch.arange(size)
    return ((positions >= 0) & (positions < length)).any(dim=0)
