"""The loss of training."""

import functools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs

# Maps logits (B, C), float32, and targets, (B,) or (B, C), to the sum of the images' losses.
LossSum = Callable[[Tensor, Tensor], Tensor]


def make_loss(inputs: TrainingInputs, world: World) -> LossSum:
    """Return the cross entropy with the recipe's options, summed over a batch.

    With `balance_classes`, the log frequency of each category is added to its logits first (Menon
    and others, ICLR 2021, equation 10, tau 1), so that the network's own logits need not encode it.
    """
    smoothing = inputs.recipe.label_smoothing
    cross_entropy = functools.partial(F.cross_entropy, label_smoothing=smoothing, reduction="sum")
    if not inputs.recipe.balance_classes:
        return cross_entropy

    # Inverse-frequency class weights are worse than none: if a category has one image of a
    # thousand, a step that contains it forgets the other categories.
    counts = np.maximum(inputs.training.class_counts(), 1)  # (C,)
    log_frequencies = torch.tensor(
        np.log(counts / counts.sum()), dtype=torch.float32, device=world.device
    )

    def balanced(logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits + log_frequencies, targets)

    return balanced
