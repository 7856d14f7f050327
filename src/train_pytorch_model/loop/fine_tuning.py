"""How a training begins behind pretrained weights that are to tell other categories.

Their batch norms keep the statistics they come with, moved by a share towards those of the new images, and
normalise by them in training as well. By those of the few images of a step, features are neither what the
weights were made for nor what validation sees.

The head begins with zeros: behind a random one, the filters' first steps go anywhere. It has a rate of its
own. A step of learning rate r moves what the head says of an image by r times the squared length of the
image's features, a scale that every network brings along. Normalised least mean squares (Nagumo and Noda,
1967) divides the rate by it, so that a head learns as fast behind any of them.

The filters have a limit. A step changes a filter by its rate over its squared length, and where statistics
stay, nothing takes back what is too much: the loss is NaN soon.
"""

import math
import statistics
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor, nn

from train_pytorch_model.config import TrainConfig
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.distributed import World
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Pixels, view
from train_pytorch_model.inputs import TrainingInputs
from train_pytorch_model.networks.batch_norms import (
    blend_statistics,
    keep_statistics,
    running_statistics,
    set_running_statistics,
    set_training_mode,
)
from train_pytorch_model.networks.layers import batch_norms
from train_pytorch_model.networks.models import clear

# Of the new images in the statistics of batch norms. Behind ImageNet's weights, textures gain 7 points by it
# and CIFAR-10's images lose 2; at 0.5, so few images say too little, and the 7 points are gone.
SHARE = 0.3
# Learning rate over squared length. Filters of networks trained here from scratch are 0.2 long: at 0.001,
# kept statistics cost 200 images of CIFAR-10 22 points without it; at 0.01, ImageNet's weights diverge.
MAX_RATE = 0.003
# Learning rate times squared length. At the weights' own rate a head hardly learns in five epochs: with
# ImageNet's, 354 cut-out photographs of eight categories were 46 % right, and 71 % with this. Three times as
# much is as good there, and loses 14 points where the weights are of few small images.
HEAD_STEP = 4.0
# Longer trainings are to go no further, in finer steps: few images are known by heart by then. At full rates
# 30 epochs are worse than five of cut-out photographs and drawings; textures are a little better by them.
FULL_RATE_EPOCHS = 10
MAX_FACTOR = 100.0  # for features that say next to nothing
MAX_IMAGES = 16  # looked at: the squares of single photographs differ by a fifth
MAX_PIXELS = MAX_IMAGES << 18  # of all of them: a step that is trained in parts leaves no room for more


def begin_fine_tuning(
    model: nn.Module, inputs: TrainingInputs, config: TrainConfig, world: World
) -> dict[nn.Parameter, float]:
    """Settle batch norms and head; return how fast all learn: parameter → multiple of the schedule's rate.

    Weights that know these categories already stay as they are, and nothing is returned, as for random ones.
    Alike on all processes. `model` maps uint8 images (B, 3, H, W) to logits, normalised in its first module.
    """
    directory = inputs.model
    knows_these = directory.is_trained and directory.categories == tuple(inputs.categories)
    if knows_these or not (directory.is_pretrained or directory.is_trained):
        return {}
    head = model.get_submodule(f"1.{FAMILY_OF[directory.architecture].head}")
    if directory.is_trained:  # of as many other categories, it may be: what pretrained weights bring may fit
        clear(head)
    keep_statistics(model)
    square = 0.0
    if world.is_main:
        images = some_images(inputs, num_looked_at(inputs, config.batch_size)).to(world.device)
        if len(images) > 1:  # of which batch norms can make something
            if not inputs.recipe.freeze_backbone:  # or the filters could not follow: up to 7 points fewer
                blend_statistics(model, images, SHARE)
            square = mean_square(model, head, images)
    square, shared = world.share((square, running_statistics(model).cpu()))
    set_running_statistics(model, shared)
    peak_lr, slower = config.learning_rate * world.size, min(1.0, FULL_RATE_EPOCHS / config.epochs)
    factors = dict.fromkeys(model.parameters(), _two_digits(min(slower, max_rate(model) / peak_lr)))
    # Who learns slowly wants a slow head, too; who learns fast, or with many processes, gets no faster one.
    fast = HEAD_STEP / (square * max(peak_lr, TrainConfig.learning_rate)) if square > 0 else 1.0
    return factors | dict.fromkeys(head.parameters(), _two_digits(min(MAX_FACTOR, slower * fast)))


def max_rate(model: nn.Module) -> float:
    """The highest learning rate of weights whose batch norms keep their statistics; no limit without any."""
    if not any(batch_norms(model)):
        return math.inf
    lengths = (
        float(module.weight.detach().flatten(1).square().sum(dim=1).mean())
        for module in model.modules()
        if isinstance(module, nn.Conv2d)
    )
    return MAX_RATE * statistics.median(lengths)


def num_looked_at(inputs: TrainingInputs, batch_size: int) -> int:
    """How many training images tell statistics and lengths of features."""
    fitting = min(MAX_IMAGES, batch_size, MAX_PIXELS // inputs.training_framing.num_pixels)
    return min(len(inputs.training), max(2, fitting))


def some_images(inputs: TrainingInputs, count: int) -> Tensor:
    """(B, 3, H, W), uint8: training images, from the first of the first category to the last of the last."""
    images, framing, decoders = inputs.training, inputs.training_framing, Decoders()
    pixels: list[Pixels] = []
    try:
        for index in np.linspace(0, len(images) - 1, count, dtype=np.int64).tolist():
            with suppress(UnreadableImageError):  # who trains on it says so
                pixels.append(view(decoders.decode(images.path(index), framing.short_side), framing))
    finally:
        decoders.end()
    if not pixels:
        return torch.empty(0, 3, framing.height, framing.width, dtype=torch.uint8)
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


@torch.no_grad()
def mean_square(model: nn.Module, head: nn.Module, images: Tensor) -> float:
    """The mean squared length of what a head is given in training, of images (B, 3, H, W), uint8."""
    squares: list[Tensor] = []
    hook = head.register_forward_pre_hook(
        lambda _, given: squares.append(given[0].float().square().sum(dim=1).mean())
    )
    set_training_mode(model)
    try:
        model(images)
    finally:
        hook.remove()
    return float(squares[0])


def _two_digits(factor: float) -> float:
    """The last bits of a sum differ between machines, and a run may go on on another one."""
    return float(f"{factor:.2g}")
