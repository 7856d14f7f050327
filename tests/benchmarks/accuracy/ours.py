"""The program's own training, from the same parts as in the program."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from tests.benchmarks.accuracy.comparison import Epoch, Setting, judged
from tests.trainings import Training, start_training
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.data.loader import start_readers
from train_pytorch_model.data.pixel_decisions import decide_flips
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.pixels import read_pixels, view
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.training.batches import open_batches
from train_pytorch_model.training.metrics import Metrics

Prepare = Callable[[Training], nn.Module]
"""Changes a training before it starts, with PyTorch hooks; returns the network to evaluate."""


def train(
    setting: Setting,
    recipe: Recipe = Recipe(),  # noqa: B008 (it is frozen)
    prepare: Prepare = lambda training: training.engine.network,
    zero_init: bool = False,
    judged_at: float = 1.0,
    warmup_epochs: int = 0,
) -> Iterator[Epoch]:
    """Yield each epoch of a training by a recipe, until the last epoch or early stopping.

    The held-out images are evaluated at `judged_at` times the recipe's size.
    """
    config = replace(setting.config, warmup_epochs=warmup_epochs)
    training = make_training(replace(setting, config=config), recipe, zero_init)
    yield from epochs_of(training, prepare(training), judged_at)


def make_training(setting: Setting, recipe: Recipe, zero_init: bool = False) -> Training:
    """Return a training that has not started yet."""
    recipe = replace(recipe, image_size=recipe.image_size or setting.images.image_size)
    world = World(0, 1, 0, 1, setting.device)
    inputs = decide_flips(setting.open(recipe, zero_init), world)
    return start_training(setting.config, inputs, world)


def epochs_of(training: Training, network: nn.Module, judged_at: float = 1.0) -> Iterator[Epoch]:
    """Train, and evaluate `network` after every epoch."""
    plan, state, inputs = training.plan, training.state, training.plan.inputs
    framing, device = inputs.framing, plan.world.device
    seen = replace(
        framing, height=round(framing.height * judged_at), width=round(framing.width * judged_at)
    )
    pixels, targets = held_out(inputs, seen, device)
    network = nn.Sequential(Normalize(inputs.spec.mean, inputs.spec.std).to(device), network)
    with start_readers(plan.world) as readers, open_batches(training.engine, readers) as batches:
        while not state.is_over:
            training.train(batches)
            epoch = judged(network, pixels, targets)
            # Serves as the validation too, which would evaluate the same images again.
            state.validated = Metrics(
                float(epoch.losses.mean()), float(epoch.hits.mean()), math.nan, len(targets)
            )
            state.close_epoch(training.engine.network)
            yield epoch


def head_of(network: nn.Module, architecture: str) -> nn.Linear:
    """Return the last linear layer."""
    head = network.get_submodule(FAMILY_OF[architecture].head)
    assert isinstance(head, nn.Linear)
    return head


def held_out(inputs: OpenedInputs, framing: Framing, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return pixels (N, 3, H, W), uint8, and targets (N,) of the held-out images."""
    directory = inputs.validation
    pixels = np.stack(
        [
            view(read_pixels(directory.path(index), framing.short_side), framing)
            for index in range(len(directory))
        ]
    )
    targets = torch.from_numpy(directory.class_indices).long()
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).to(device), targets.to(device)
