"""How weights are trained: the recipe's loss, precision, optimizer and learning rates.

The optimizer is the classic component's SGD, or AdamW where SGD is too slow.
"""

import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import SGD, AdamW, Optimizer

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.networks.batch_norms import batch_norms
from train_pytorch_model.words.settings import DecidedRecipe

LossSum = Callable[[Tensor, Tensor], Tensor]  # logits (B, C), float32, targets (B,) or (B, C) → sum
OptimizerName = Literal["sgd", "adamw"]
# As in the classic component, where they are not parameters.
MOMENTUM = 0.9
WEIGHT_DECAY = 1e-4  # not for biases and norms, which are one-dimensional
POWER = 2  # of the learning rate's decay
# As in the recipes of DeiT, Swin and ConvNeXt; AdamW multiplies it by the learning rate.
ADAMW_WEIGHT_DECAY = 0.05
# Of the learning rate, whose default of 0.001 suits SGD. The recipes of ViT, Swin and ConvNeXt,
# scaled by the square root to 16 images a step, come to 1e-4 to 2e-4; tiny networks train faster
# with more.
ADAMW_RATE = 0.3
BFLOAT16_CAPABILITY = (8, 0)  # Ampere; before it, bfloat16 is emulated
FLOAT16_CAPABILITY = (7, 0)  # Volta; before it, float16 gains no speed


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


@dataclass(frozen=True)
class PolynomialSchedule:
    """Linear warmup and polynomial decay. Step → learning rate: a pure function, with no state to
    save.

    With W = `warmup_steps` and T = `total_steps`, step s (counted from 0) has the learning rate
    `peak_lr * (s + 1) / W` for s < W, then `peak_lr * (1 - (s - W) / (T - W)) ** 2`:
    the first step after the warmup has the peak, the step after the last one would have 0.
    """

    peak_lr: float
    warmup_steps: int
    total_steps: int

    def __call__(self, step: int) -> float:
        if step < self.warmup_steps:
            return self.peak_lr * (step + 1) / self.warmup_steps
        decay_steps = self.total_steps - self.warmup_steps
        return self.peak_lr * (1 - (step - self.warmup_steps) / decay_steps) ** POWER


def make_loss(inputs: TrainingInputs, world: World) -> LossSum:
    """Cross entropy with the recipe's options, summed over a batch.

    With `balance_classes`, the log frequency of each category is added to its logits first (Menon
    and others, ICLR 2021, equation 10, tau 1), so that the network's own logits need not encode it.
    """
    smoothing = inputs.recipe.label_smoothing
    cross_entropy = functools.partial(F.cross_entropy, label_smoothing=smoothing, reduction="sum")
    if not inputs.recipe.balance_classes:
        return cross_entropy
    # Inverse-frequency class weights are worse than none: if a category has one image of a
    # thousand, a step that contains it forgets the other categories.
    counts = np.maximum(inputs.training.class_counts(), 1)
    log_frequencies = torch.tensor(
        np.log(counts / counts.sum()), dtype=torch.float32, device=world.device
    )
    return lambda logits, targets: cross_entropy(logits + log_frequencies, targets)


@dataclass(frozen=True)
class Precision:
    """A floating-point format and why it was chosen."""

    dtype: torch.dtype
    reason: str

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """The autocast context of a forward pass; does nothing for float32."""
        is_exact = self.dtype == torch.float32
        return nullcontext() if is_exact else torch.autocast(device.type, dtype=self.dtype)

    def scaler(self, device: torch.device) -> GradScaler:
        """A loss scaler for float16, else disabled; never waits: fused optimizers skip steps
        themselves.
        """
        return GradScaler(device.type, enabled=self.dtype == torch.float16)

    @property
    def name(self) -> str:
        """The name of the dtype, such as `bfloat16`."""
        return str(self.dtype).removeprefix("torch.")

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_precision(requested: str, device: torch.device) -> Precision:
    """The recipe's precision; for `auto`, bfloat16 if the hardware supports it, else float16 or
    float32.
    """
    if requested != "auto":
        return Precision(getattr(torch, requested), "the recipe says so")
    if device.type == "cuda":
        name = torch.cuda.get_device_name(device)
        capability = torch.cuda.get_device_capability(device)
        if capability >= BFLOAT16_CAPABILITY:
            return Precision(torch.bfloat16, f"{name} computes it in hardware")
        if capability >= FLOAT16_CAPABILITY:
            return Precision(torch.float16, f"{name} computes it in hardware, but not bfloat16")
        return Precision(torch.float32, f"{name} has neither bfloat16 nor float16")
    if device.type != "cpu":
        return Precision(torch.float32, f"others are not measured on {device.type}")
    if _cpu_has_bfloat16():
        return Precision(torch.bfloat16, "this CPU computes it in hardware")
    return Precision(torch.float32, "this CPU has no bfloat16")


def _cpu_has_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    try:
        with cpuinfo.open() as file:
            flags = next(line for line in file if line.startswith("flags"))
    except (OSError, StopIteration):
        return False
    return not {"amx_bf16", "avx512_bf16"}.isdisjoint(flags.split())
