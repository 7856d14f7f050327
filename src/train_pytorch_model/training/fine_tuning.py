"""How fine-tuning starts from pretrained weights for new categories.

Batch norms keep the pretrained running statistics, moved a part of the way towards those of the new
images, and normalize by them in training as well. Normalized by the statistics of a small batch,
features would match neither what the weights were trained for nor what validation sees.

The head starts from zeros, but for categories that the weights were trained for (`build_model`):
with a random head, the filters' first steps go in random directions. Its learning rate is
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
from train_pytorch_model.image_classifier.decoding import Pixels, UnreadableImageError
from train_pytorch_model.image_classifier.pixels import view
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.networks import batch_norms
from train_pytorch_model.training.optimizer import OptimizerName
from train_pytorch_model.training.whitening import Whitening, whitening_of

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
# The same of whitened features, with the squared norm that is left of them: see
# `tests.benchmarks.accuracy.one_vs_rest`.
WHITENED_HEAD_STEP = 8.0
# Longer training takes smaller steps and moves no further: by then, small datasets are overfit. At
# the full rate, 30 epochs are worse than five on cut-out photographs and drawings, and a little
# better on textures.
FULL_RATE_EPOCHS = 10
ADAMW_HEAD_FACTOR = 10.0  # of the backbone's learning rate
# Of the multiplications, by the first layers, which stay as they are: a ResNet-18's step takes 0.7
# of the time, and learns as well.
FROZEN_FRACTION = 0.33
MAX_FACTOR = 100.0  # for features close to zero
MAX_WHITENED_FACTOR = 1000.0  # of whose norm most is gone
# Samples by which features are whitened. Of 1,200 mosaics of digits, mean average precision after
# five epochs: by one sample 0.617, by four 0.627, by sixteen 0.624; one-vs-rest 0.629.
WHITENING_SAMPLES = 4
MAX_IMAGES = 16  # sampled: the squared norms of single photographs differ by a fifth
# Over all of them: a step split into micro-batches leaves no memory for more.
MAX_PIXELS = MAX_IMAGES << 18


@dataclass(frozen=True)
class LearningRateFactors:
    """The learning rates of a network's parts, as multiples of the schedule's."""

    head: float = 1.0
    backbone: float = 1.0  # 1 as well if it is frozen
    is_whitened: bool = False  # whether the head's steps are as on white features

    def by_parameter(self, network: nn.Module, head: nn.Module) -> dict[nn.Parameter, float]:
        """Return the factor of each parameter of a network, of which `head` is the last layer."""
        factors = dict.fromkeys(network.parameters(), self.backbone)
        return factors | dict.fromkeys(head.parameters(), self.head)


def prepare_fine_tuning(
    model: nn.Module,
    inputs: TrainingInputs,
    config: TrainConfig,
    world: World,
    peak_lr: float,
    optimizer: OptimizerName = "sgd",
    is_whitened: bool = False,
) -> tuple[LearningRateFactors, Whitening | None]:
    """Prepare batch norms, and return the learning rates of head and backbone; collective.

    And how the head's gradients are whitened, if they are to be, which only SGD needs.

    Random weights and weights trained for these very categories are left alone: all their factors
    are 1. `model` maps uint8 images (B, 3, H, W) to logits; its first module normalizes.
    """
    if not inputs.model.is_fine_tuned_for(inputs.categories):
        return LearningRateFactors(), None
    network = model.get_submodule("1")
    head = network.get_submodule(head_of(inputs.model.architecture, network))
    features = _prepare_batch_norms(model, head, inputs, config.batch_size, world)
    whitening: Whitening | None = None
    if is_whitened and optimizer == "sgd" and isinstance(head, nn.Linear):
        whitening = _whitening(model, head, inputs, config.batch_size, world)
    if optimizer == "adamw":
        factors = _factors_of_adamw(config.epochs)
    elif whitening is None:
        factors = _factors_of_sgd(
            model, mean_squared_norm(features), config.epochs, peak_lr, HEAD_STEP, MAX_FACTOR
        )
    else:
        factors = _factors_of_sgd(
            model,
            whitening.squared_norm,
            config.epochs,
            peak_lr,
            WHITENED_HEAD_STEP,
            MAX_WHITENED_FACTOR,
        )
    # Two digits: the last bits differ between machines, and a run may resume on another one.
    head_factor = float(f"{factors.head:.2g}")
    backbone_factor = float(f"{factors.backbone:.2g}")
    if inputs.recipe.freeze_backbone:
        backbone_factor = 1.0
    factors = LearningRateFactors(head_factor, backbone_factor, whitening is not None)
    return factors, whitening


def _prepare_batch_norms(
    model: nn.Module, head: nn.Module, inputs: TrainingInputs, batch_size: int, world: World
) -> Tensor:
    """Freeze statistics, moved towards the new images'; return features (N, F) of a sample of them.

    The main process computes both for all. N is 0 if there are too few readable images.
    """
    batch_norms.freeze_statistics(model)
    features = torch.empty(0, 0)
    if world.is_main:
        images = sample_images(inputs, num_sampled(inputs, batch_size), world).to(world.device)
        if len(images) > 1:  # batch norms may need two
            batch_norms.blend_statistics(model, images, STATISTICS_FRACTION)
            features = features_of(head, model, images).cpu()
    statistics_of_main = batch_norms.running_statistics(model).cpu()
    features, statistics_of_main = world.broadcast((features, statistics_of_main))
    batch_norms.set_running_statistics(model, statistics_of_main)
    return features


def _whitening(
    model: nn.Module, head: nn.Module, inputs: TrainingInputs, batch_size: int, world: World
) -> Whitening | None:
    """Return how the head's gradients are whitened; None if there are too few readable images.

    The main process computes it for all: the last bits differ between machines.
    """
    whitening: Whitening | None = None
    if world.is_main:
        at_once = num_sampled(inputs, batch_size)
        count = min(len(inputs.training), WHITENING_SAMPLES * at_once)
        images = sample_images(inputs, count, world)
        features = [
            features_of(head, model, images[start : start + at_once].to(world.device))
            for start in range(0, len(images), at_once)
        ]
        if features:
            whitening = whitening_of(torch.cat(features))
    return world.broadcast(whitening)


def _factors_of_adamw(epochs: int) -> LearningRateFactors:
    """Return the factors for AdamW, whose steps do not depend on norms of filters and features."""
    backbone = _factor_of_length(epochs)
    return LearningRateFactors(head=backbone * ADAMW_HEAD_FACTOR, backbone=backbone)


def _factors_of_sgd(
    model: nn.Module,
    squared_norm: float,
    epochs: int,
    peak_lr: float,
    head_step: float,
    max_factor: float,
) -> LearningRateFactors:
    """Return the factors for SGD, by the squared norms of features and filters."""
    length_factor = _factor_of_length(epochs)
    # Below the default learning rate, the head's falls in proportion; above it, or with many
    # processes, the head's stays constant.
    head_factor = 1.0
    if squared_norm > 0:
        head_factor = head_step / (squared_norm * max(peak_lr, TrainConfig.learning_rate))
    return LearningRateFactors(
        head=min(max_factor, length_factor * head_factor),
        backbone=min(length_factor, _max_lr_of_filters(model) / peak_lr),
    )


def _factor_of_length(epochs: int) -> float:
    return min(1.0, FULL_RATE_EPOCHS / epochs)


def _max_lr_of_filters(model: nn.Module) -> float:
    """Return the highest learning rate that the filters tolerate with frozen statistics."""
    if not any(batch_norms.batch_norms(model)):
        return math.inf
    filters = [
        module.weight.detach() for module in model.modules() if isinstance(module, nn.Conv2d)
    ]
    squared_norms = [float(weight.flatten(1).square().sum(dim=1).mean()) for weight in filters]
    return MAX_LR * statistics.median(squared_norms)


def num_sampled(inputs: TrainingInputs, batch_size: int) -> int:
    """Return how many training images are sampled for batch norm statistics and feature norms."""
    most = min(MAX_IMAGES, batch_size, MAX_PIXELS // inputs.training_framing.num_pixels)
    return min(len(inputs.training), max(2, most))


def sample_images(inputs: TrainingInputs, count: int, world: World) -> Tensor:
    """Return training images (B, 3, H, W), uint8, evenly spaced from the first to the last.

    There are fewer than `count` if some are unreadable, which training reports.
    """
    images = inputs.training
    framing = inputs.training_framing
    pixels: list[Pixels] = []
    with start_decoders(world) as decoders:
        for index in evenly_spaced(len(images), count).tolist():
            with suppress(UnreadableImageError):
                decoded = decoders.decode(images.path(index), framing.short_side, framing.colours)
                pixels.append(view(decoded, framing))
    if not pixels:
        return torch.empty(0, 3, framing.height, framing.width, dtype=torch.uint8)
    return torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)


@torch.no_grad()
def features_of(head: nn.Module, model: nn.Module, images: Tensor) -> Tensor:
    """Return the features (B, F), float32, that `head` gets in training.

    The images (B, 3, H, W) are uint8.
    """
    batch_norms.set_training_mode(model)
    with recording_inputs(head) as features:
        model(images)
    return features[0].float()


def mean_squared_norm(features: Tensor) -> float:
    """Return the mean squared norm of features (N, F); 0 without any."""
    return float(features.square().sum(dim=1).mean()) if len(features) else 0.0
