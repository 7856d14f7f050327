"""The optimizer, chosen by the network and the images."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.networks.batch_norms import batch_norms

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
        """What the learning rate is multiplied by."""
        return ADAMW_RATE if self.name == "adamw" else 1.0

    def __str__(self) -> str:
        return f"{'AdamW' if self.name == 'adamw' else 'SGD'} ({self.reason})"


def choose_optimizer(
    recipe: DecidedRecipe, network: nn.Module, is_trained: bool
) -> OptimizerChoice:
    """The recipe's; for `auto`, AdamW without batch norms from random weights, so not if
    `is_trained`.
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
    factors: Mapping[nn.Parameter, float] = MappingProxyType({}),
    name: OptimizerName = "sgd",
) -> Optimizer:
    """The optimizer of all trainable parameters; each step sets their rates, scaled by their
    `factors`.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    weight_decay = WEIGHT_DECAY if name == "sgd" else ADAMW_WEIGHT_DECAY
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for parameter in trained:
        groups.setdefault((parameter.ndim > 1, factors.get(parameter, 1.0)), []).append(parameter)
    settings = [
        {
            "params": parameters,
            "weight_decay": weight_decay if is_decayed else 0.0,
            "lr_factor": factor,
        }
        for (is_decayed, factor), parameters in groups.items()
    ]
    # Fused: 2.3 times as fast as the for-loop implementation on a CPU. Their state exists from the
    # beginning: checkpoints and CUDA graphs need it, and if the scaler skipped the first step, SGD
    # would continue from uninitialized momentum.
    if name == "sgd":
        optimizer: Optimizer = SGD(settings, lr=0.0, momentum=MOMENTUM, nesterov=True, fused=True)
        for parameter in trained:
            optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        return optimizer
    is_captured = any(parameter.is_cuda for parameter in trained)
    optimizer = AdamW(settings, lr=0.0, fused=True, capturable=is_captured)
    for parameter in trained:
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def momentum_of(optimizer: Optimizer, network: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors: for SGD by the parameter's name, for AdamW by `NAME.exp_avg` and so
    on.
    """
    return {
        name if key == "momentum_buffer" else f"{name}.{key}": value
        for name, parameter in network.named_parameters()
        if parameter.requires_grad
        for key, value in optimizer.state[parameter].items()
    }


def set_learning_rate(optimizer: Optimizer, lr: float | Tensor) -> None:
    """Set the learning rate of the next step, `Plan.learning_rate`, times each group's factor."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_factor", 1.0)
