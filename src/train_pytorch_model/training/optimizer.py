"""The optimizer, chosen by the network and its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.networks.batch_norms import batch_norms
from train_pytorch_model.networks.small_maps import unmet_weights_of
from train_pytorch_model.networks.unmet_weights import apply_steps
from train_pytorch_model.training.channels_last_sgd import ChannelsLastSGD

OptimizerName = Literal["sgd", "adamw"]
# As in the classic component, where they are not parameters.
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4  # not for biases and norms, which are one-dimensional
# As in the recipes of DeiT, Swin and ConvNeXt; AdamW multiplies it by the learning rate.
ADAMW_WEIGHT_DECAY = 0.05
# Of the learning rate, whose default of 0.001 suits SGD. The recipes of ViT, Swin and ConvNeXt,
# scaled by the square root to 16 images a step, come to 1e-4 to 2e-4; tiny networks train faster
# with more.
ADAMW_RATE = 0.3


@dataclass(frozen=True)
class OptimizerChoice:
    """An optimizer and why it was chosen."""

    name: OptimizerName
    reason: str

    @property
    def rate(self) -> float:
        """Return what the learning rate is multiplied by."""
        return ADAMW_RATE if self.name == "adamw" else 1.0

    def __str__(self) -> str:
        title = "AdamW" if self.name == "adamw" else "SGD"
        return f"{title} ({self.reason})"


def choose_optimizer(
    recipe: DecidedRecipe, network: nn.Module, is_trained: bool
) -> OptimizerChoice:
    """Return the recipe's optimizer; for `auto`, AdamW from random weights without batch norms.

    `is_trained` says whether the weights have been trained before.
    """
    if recipe.optimizer != "auto":
        return OptimizerChoice(recipe.optimizer, "the recipe says so")
    if any(batch_norms(network)):
        return OptimizerChoice("sgd", "the network has batch norms")
    if is_trained:  # SGD's steps are small beside trained weights
        return OptimizerChoice("sgd", "the weights are trained already")
    if recipe.freeze_backbone:
        return OptimizerChoice("sgd", "the last layer only")
    return OptimizerChoice("adamw", "from scratch, without batch norms")


def make_optimizer(
    network: nn.Module,
    lr_factors: Mapping[nn.Parameter, float] = MappingProxyType({}),
    name: OptimizerName = "sgd",
    delays_unmet: bool = False,
) -> Optimizer:
    """Return the optimizer of all trainable parameters.

    Each step sets their learning rates, multiplied by their `lr_factors`, 1 for those without.
    With `delays_unmet`, steps of weights that meet no pixel wait, on a CPU with SGD.
    """
    trainable = [parameter for parameter in network.parameters() if parameter.requires_grad]
    # Fused: 2.3 times as fast as the for-loop implementation on a CPU. The optimizer's state exists
    # from the beginning: checkpoints and CUDA graphs need it, and if the scaler skipped the first
    # step, SGD would continue from uninitialized momentum.
    if name == "sgd":
        groups = _parameter_groups(trainable, WEIGHT_DECAY, lr_factors)
        is_on_cpu = all(parameter.is_cpu for parameter in trainable)
        sgd = ChannelsLastSGD if is_on_cpu else SGD
        optimizer: Optimizer = sgd(groups, lr=0.0, momentum=MOMENTUM, nesterov=True, fused=True)
        for parameter in trainable:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        if delays_unmet and isinstance(optimizer, ChannelsLastSGD):
            optimizer.delay_unmet(network)
        return optimizer

    groups = _parameter_groups(trainable, ADAMW_WEIGHT_DECAY, lr_factors)
    is_capturable = any(parameter.is_cuda for parameter in trainable)
    optimizer = AdamW(groups, lr=0.0, fused=True, capturable=is_capturable)
    for parameter in trainable:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def _parameter_groups(
    parameters: Sequence[nn.Parameter],
    weight_decay: float,
    lr_factors: Mapping[nn.Parameter, float],
) -> list[dict[str, Any]]:
    """Return the optimizer's groups: of parameters that share weight decay and learning rate."""
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        is_decayed = parameter.ndim > 1
        lr_factor = lr_factors.get(parameter, 1.0)
        groups.setdefault((is_decayed, lr_factor), []).append(parameter)
    return [
        {
            "params": group,
            "weight_decay": weight_decay if is_decayed else 0.0,
            "lr_factor": lr_factor,
        }
        for (is_decayed, lr_factor), group in groups.items()
    ]


def momentum_of(optimizer: Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """Return the optimizer's tensors by name.

    For SGD that is the parameter's name, for AdamW `NAME.exp_avg` and so on.
    """
    tensors = {}
    for name, parameter in network.named_parameters():
        if not parameter.requires_grad:
            continue
        for key, tensor in optimizer.state[parameter].items():
            tensors[name if key == "momentum_buffer" else f"{name}.{key}"] = tensor
    return tensors


def delayed_of(network: nn.Module) -> dict[str, Tensor]:
    """Return the steps that wait to be applied to weights, by the names of these."""
    unmet = unmet_weights_of(network)
    return {name: each.steps for name, each in unmet.items() if each.is_any_waiting}


def restore_delayed(optimizer: Optimizer, network: nn.Module, steps: Mapping[str, Tensor]) -> None:
    """Let steps wait that `delayed_of` has returned; apply those of weights whose steps do not."""
    unmet = unmet_weights_of(network)
    for name, waiting in steps.items():
        if name in unmet:
            unmet[name].wait(waiting)
        else:
            parameter = network.get_parameter(name)
            momentum = optimizer.state[parameter]["momentum_buffer"]
            apply_steps(waiting.to(parameter.device), parameter, momentum)


def set_learning_rate(optimizer: Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate of the next step, `Plan.learning_rate`, times each group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
