"""What only running a network on images of a size can tell, without computing any values."""

from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from train_pytorch_model.config.wording import parameter, with_init_model
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.networks.batch_norms import set_training_mode


class WithoutMemory(TorchFunctionMode):
    """A context in which layers get tensors on the meta device, and draw no random numbers.

    It is narrower than `torch.device("meta")`: RegNet computes with other tensors as it is built.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in (torch.empty, torch.ones, torch.zeros):
            kwargs["device"] = "meta"
        return func(*args, **kwargs)


def min_local_batch(network: nn.Module, height: int, width: int) -> int:
    """Return the fewest images of a step: 2 if batch norm meets 1 x 1 feature maps, otherwise 1.

    Raises `ParameterError` for images that are too small for the network.
    """
    try:
        try:
            dry_run(network, 1, height, width)
        except ValueError:  # "Expected more than 1 value per channel when training"
            dry_run(network, 2, height, width)
            return 2
    except (RuntimeError, AssertionError) as error:  # the latter is timm's
        reason = " ".join(str(error).split())[:120]
        raise ParameterError(
            f"Images of {height} x {width} px are too small for a {type(network).__name__}"
            f" ({reason}). {with_init_model('In init-model, name', 'Name')} a larger"
            f" {parameter('image_size')}, and no smaller {parameter('training_size')}."
        ) from error
    return 1


def width_of_features(network: nn.Module, head: str, height: int, width: int) -> int | None:
    """Return the number of features that the last layer, `head`, maps to logits.

    None if the network computes more after it, or if it maps no vectors.
    """
    recorded: list[tuple[Tensor, Tensor]] = []

    def record(_: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        recorded.append((inputs[0], output))

    with network.get_submodule(head).register_forward_hook(record):
        logits = dry_run(network, 2, height, width)
    if len(recorded) != 1:
        return None
    [(features, output)] = recorded
    if features.ndim != 2 or output is not logits:
        return None
    return features.shape[1]


def count_first_parameters(network: nn.Module, height: int, width: int, fraction: float) -> int:
    """Return how many of the network's parameters, in their order, belong to its first layers.

    These are the convolutions and linear layers that together do up to this fraction of the
    multiplications, and norms among them.
    """
    costs: dict[nn.Module, int] = {}

    def count(layer: nn.Module, _: object, output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d | nn.Linear)
        multiplications_per_value = layer.weight[0].numel()
        costs[layer] = multiplications_per_value * output.numel()

    with ExitStack() as hooks:
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                hooks.callback(layer.register_forward_hook(count).remove)
        dry_run(network, 2, height, width)

    limit = fraction * sum(costs.values())
    later_weights: set[object] = set()
    cost_so_far = 0
    for layer, cost in costs.items():
        cost_so_far += cost
        if cost_so_far > limit:
            later_weights.add(layer.weight)
    for number, weight in enumerate(network.parameters()):
        if weight in later_weights:
            return number
    return sum(1 for _ in network.parameters())


def dry_run(network: nn.Module, num_images: int, height: int, width: int) -> Tensor:
    """Return the logits of a forward pass in training, which have a shape but no values."""
    tensors = (*network.named_parameters(), *network.named_buffers())
    without_values = {name: tensor.detach().to("meta") for name, tensor in tensors}
    set_training_mode(network)
    images = torch.empty(num_images, 3, height, width, device="meta")
    logits: Tensor = torch.func.functional_call(network, without_values, (images,))
    return logits
