"""What only running a network on images of a size can tell, found without computing."""

import itertools
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from train_pytorch_model.config.wording import parameter, worded
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.networks.batch_norms import set_training_mode


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
            dry_run(network, 1, height, width)
        except ValueError:  # "Expected more than 1 value per channel when training"
            dry_run(network, 2, height, width)
            return 2
    except RuntimeError as error:
        raise ParameterError(
            f"Images of {height} x {width} px are too small for a {type(network).__name__}"
            f" ({' '.join(str(error).split())[:120]}). {worded('In init-model, name', 'Name')} a"
            f" larger {parameter('image_size')}, and no smaller {parameter('training_size')}."
        ) from error
    return 1


def width_of_features(network: nn.Module, head: str, height: int, width: int) -> int | None:
    """The number of features that the last layer, `head`, maps to logits; None if it is not the
    last step.
    """
    seen: list[Tensor] = []
    layer = network.get_submodule(head)
    with layer.register_forward_hook(lambda _, inputs, output: seen.extend((inputs[0], output))):
        logits = dry_run(network, 2, height, width)
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
        dry_run(network, 2, height, width)
    done, limit = itertools.accumulate(costs.values()), share * sum(costs.values())
    others = {layer.weight for layer, cost in zip(costs, done, strict=True) if cost > limit}
    return sum(
        1 for _ in itertools.takewhile(lambda each: each not in others, network.parameters())
    )


def dry_run(network: nn.Module, num_images: int, height: int, width: int) -> Tensor:
    """Return the logits, without values."""
    tensors = (*network.named_parameters(), *network.named_buffers())
    shapes = {name: tensor.detach().to("meta") for name, tensor in tensors}
    set_training_mode(network)
    images = torch.empty(num_images, 3, height, width, device="meta")
    logits: Tensor = torch.func.functional_call(network, shapes, (images,))
    return logits
