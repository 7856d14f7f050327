"""How fine-tuning starts from pretrained weights for new categories.

Batch norms keep the pretrained running statistics, moved a part of the way towards those of the new
images, and normalize by them in training as well. Normalized by the statistics of a small batch,
features would match neither what the weights were trained for nor what validation sees.

The head starts from zeros, but for categories that the weights were trained for (`build_model`):
with a random head, the filters' first steps go in random directions. Its own learning rate is
divided by the squared norm of its features, whose scale depends on the network, as in normalized
least mean squares (Nagumo and Noda, 1967): so it trains equally fast on any.

The filters' learning rate is capped. A step changes a filter by its learning rate over its squared
norm, and with frozen statistics nothing corrects a step that is too large: the loss soon becomes
NaN.
"""

import math
import statistics
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.data.loader import start_decoders
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.image_classifier.architectures import head_of
from train_pytorch_model.image_classifier.classifier import recording_inputs
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import Pixels, view
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.networks import batch_norms
from train_pytorch_model.training.optimizer import OptimizerName

# Weight of the new images in batch norm statistics. From ImageNet weights, it gains 7 points on
# textures and loses 2 on CIFAR-10; at 0.5, the estimate from so few images is too noisy, and the 7
# points are gone.
STATISTICS_FRACTION = 0.3
# Learning rate over squared norm. Filters of networks trained here from scratch have norm 0.2:
# without this cap, frozen statistics cost 22 points on 200 CIFAR-10 images at 0.001; ImageNet
# weights diverge at 0.01.
MAX_LR = 0.003
# Learning rate times squared norm. At the backbone's learning rate a head barely trains in five
# epochs: from ImageNet weights, accuracy on 354 cut-out photographs of eight categories was 46 %,
# and 71 % with this. Three times as much is as good there, but loses 14 points with weights trained
# on few small images.
HEAD_STEP = 4.0
# Longer training takes smaller steps and moves no further: by then, small datasets are overfit. At
# the full rate, 30 epochs are worse than five on cut-out photographs and drawings, and a little
# better on textures.
FULL_RATE_EPOCHS = 10
ADAMW_HEAD_FACTOR = 10.0  # of the backbone's learning rate
# Of the multiplications, by the first layers: a ResNet-18's step takes 0.7 of the time, and learns
# as well.
KEPT_SHARE = 0.33
MAX_FACTOR = 100.0  # for features close to zero
MAX_IMAGES = 16  # sampled: the squared norms of single photographs differ by a fifth
MAX_PIXELS = (
    MAX_IMAGES << 18
)  # over all of them: a step split into micro-batches leaves no memory for more


@dataclass(frozen=True)
class LearningRateFactors:
    """The learning rates of a network's parts, as multiples of the schedule's."""

    head: float = 1.0
    backbone: float = 1.0  # 1 as well if it is frozen


def prepare_fine_tuning(
    model: nn.Module,
    inputs: TrainingInputs,
    config: TrainConfig,
    world: World,
    kind: OptimizerName = "sgd",
) -> dict[nn.Parameter, float]:
    """Prepare batch norms and head; return learning rate factors: parameter → multiple of the
    schedule's.

    Random weights and weights trained for these very categories are left alone, and nothing is
    returned. The same on all processes. `model` maps uint8 images (B, 3, H, W) to logits; its first
    module normalizes.
    """
    if not inputs.model.is_fine_tuned_for(inputs.categories):
        return {}
    network = model.get_submodule("1")
    head = network.get_submodule(head_of(inputs.model.architecture, network))
    batch_norms.freeze_statistics(model)
    square = 0.0
    if world.is_main:
        images = sample_images(inputs, num_sampled(inputs, config.batch_size), world).to(
            world.device
        )
        if len(images) > 1:  # batch norms may need two
            batch_norms.blend_statistics(model, images, STATISTICS_FRACTION)
            square = mean_squared_norm(model, head, images)
    square, shared = world.broadcast((square, batch_norms.running_statistics(model).cpu()))
    batch_norms.set_running_statistics(model, shared)
    peak_lr, slower = config.learning_rate * world.size, min(1.0, FULL_RATE_EPOCHS / config.epochs)
    if kind == "adamw":  # whose steps do not depend on the norms of filters and features
        factors = slower, slower * ADAMW_HEAD_FACTOR
    else:
        # Below the default learning rate, the head's falls in proportion; above it, or with many
        # processes, the head's stays constant.
        fast = HEAD_STEP / (square * max(peak_lr, TrainConfig.learning_rate)) if square > 0 else 1.0
        filters = [
            module.weight.detach() for module in model.modules() if isinstance(module, nn.Conv2d)
        ]
        squares = [float(each.flatten(1).square().sum(dim=1).mean()) for each in filters]
        has_norms = any(batch_norms.batch_norms(model))  # without, no statistics are frozen
        max_lr = MAX_LR * statistics.median(squares) if has_norms else math.inf
        factors = min(slower, max_lr / peak_lr), min(MAX_FACTOR, slower * fast)
    # Two digits: the last bits differ between machines, and a run may resume on another one.
    of_body, of_head = (float(f"{factor:.2g}") for factor in factors)
    return dict.fromkeys(model.parameters(), of_body) | dict.fromkeys(head.parameters(), of_head)


def num_sampled(inputs: TrainingInputs, batch_size: int) -> int:
    """How many training images are sampled for batch norm statistics and feature norms."""
    fitting = min(MAX_IMAGES, batch_size, MAX_PIXELS // inputs.training_framing.num_pixels)
    return min(len(inputs.training), max(2, fitting))


def sample_images(inputs: TrainingInputs, count: int, world: World) -> Tensor:
    """(B, 3, H, W), uint8: training images, evenly spaced from the first to the last."""
    images, framing = inputs.training, inputs.training_framing
    pixels: list[Pixels] = []
    with start_decoders(world) as decoders:
        for index in evenly_spaced(len(images), count).tolist():
            with suppress(UnreadableImageError):  # training reports it
                decoded = decoders.decode(images.path(index), framing.short_side, framing.colours)
                pixels.append(view(decoded, framing))
    if not pixels:
        return torch.empty(0, 3, framing.height, framing.width, dtype=torch.uint8)
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


@torch.no_grad()
def mean_squared_norm(model: nn.Module, head: nn.Module, images: Tensor) -> float:
    """The mean squared norm of the head's input features in training, for images (B, 3, H, W),
    uint8.
    """
    batch_norms.set_training_mode(model)
    with recording_inputs(head) as features:
        model(images)
    return float(features[0].float().square().sum(dim=1).mean())
