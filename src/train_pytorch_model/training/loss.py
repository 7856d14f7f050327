"""The loss of training."""

import functools
from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.opening import TrainingInputs

MAX_POSITIVE_WEIGHT = 100.0  # beyond it, the few images of a category outshout all others

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


def make_multi_label_loss(inputs: TrainingInputs, world: World) -> LossSum:
    """Return the binary cross entropy of all categories, with the recipe's options, summed.

    Label smoothing moves targets towards the base rate of each category: towards a half, it would
    make rare categories probable everywhere. With `balance_classes`, an image of a category counts
    as much as all the images without it, divided by those with it.
    """
    smoothing = inputs.recipe.label_smoothing
    rates = torch.tensor(base_rates(inputs), dtype=torch.float32, device=world.device)  # (C,)
    weights: Tensor | None = None
    if inputs.recipe.balance_classes:
        weights = torch.tensor(positive_weights(inputs), dtype=torch.float32, device=world.device)
    cross_entropy = functools.partial(
        F.binary_cross_entropy_with_logits, pos_weight=weights, reduction="sum"
    )
    if not smoothing:
        return cross_entropy

    def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(logits, targets + smoothing * (rates - targets))

    return smoothed


def base_rates(inputs: TrainingInputs) -> np.ndarray:
    """Return the fraction of the training images that have each category, (C,), never 0 or 1."""
    # Half an image more with and without each: their log-odds are finite.
    rates: np.ndarray = (inputs.training.class_counts() + 0.5) / (len(inputs.training) + 1)
    return rates


def positive_weights(inputs: TrainingInputs) -> np.ndarray:
    """Return how much an image of each category counts, against one without it: (C,)."""
    rates = base_rates(inputs)
    weights: np.ndarray = np.minimum((1 - rates) / rates, MAX_POSITIVE_WEIGHT)
    return weights
