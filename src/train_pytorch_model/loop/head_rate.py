"""How fast a new head behind pretrained weights learns: faster than they do, by what they make of images.

A step of learning rate r moves what the head says of an image by r times the squared length of the image's
features, a scale that every network brings along. Normalised least mean squares (Nagumo and Noda, 1967)
divides the rate by it, so that a head learns as fast behind any of them.
"""

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
from train_pytorch_model.networks.models import set_training_mode

# Learning rate times squared length. At the weights' own rate a head hardly learns in five epochs: with
# ImageNet's, 354 cut-out photographs of eight categories were 46 % right, and 71 % with this. Three times as
# much is as good there, and loses 14 points where the weights are of few small images.
HEAD_STEP = 4.0
MAX_FACTOR = 100.0  # for features that say next to nothing
MAX_IMAGES = 16  # looked at: the squares of single photographs differ by a fifth
MAX_PIXELS = MAX_IMAGES << 18  # of all of them: a step that is trained in parts leaves no room for more


def faster_head(
    model: nn.Module, inputs: TrainingInputs, peak_lr: float, batch_size: int, world: World
) -> dict[nn.Parameter, float]:
    """The parameters of a new head → their learning rate, as a multiple of the others'.

    Empty where the head knows as much as the others; alike on all processes. `model` maps uint8 images
    (B, 3, H, W) to logits, normalised in its first module.
    """
    directory = inputs.model
    knows_these = directory.is_trained and directory.categories == tuple(inputs.categories)
    if knows_these or not (directory.is_pretrained or directory.is_trained):
        return {}
    head = model.get_submodule(f"1.{FAMILY_OF[directory.architecture].head}")
    at_most = max(2, min(MAX_IMAGES, batch_size, MAX_PIXELS // inputs.training_framing.num_pixels))
    square = world.share(mean_square(model, head, inputs, at_most, world.device) if world.is_main else 0.0)
    if not square > 0:
        return {}
    # Who learns slowly wants a slow head, too; who learns fast, or with many processes, gets no faster one.
    factor = min(MAX_FACTOR, HEAD_STEP / (square * max(peak_lr, TrainConfig.learning_rate)))
    # Two digits: the last bits of a sum differ between machines, and a run may go on on another one.
    return dict.fromkeys(head.parameters(), max(1.0, float(f"{factor:.2g}")))


def mean_square(
    model: nn.Module, head: nn.Module, inputs: TrainingInputs, at_most: int, device: torch.device
) -> float:
    """The mean squared length of what a head is given in training, of some training images; 0 without any.

    As in a step, batch norms normalise by the images at hand: of images unlike those that the weights are of,
    features are up to twice as long by the weights' own statistics, which stay as they are.
    """
    images, framing, decoders = inputs.training, inputs.training_framing, Decoders()
    pixels: list[Pixels] = []
    try:
        for index in np.linspace(0, len(images) - 1, min(len(images), at_most), dtype=np.int64).tolist():
            with suppress(UnreadableImageError):  # who trains on it says so
                pixels.append(view(decoders.decode(images.path(index), framing.short_side), framing))
    finally:
        decoders.end()
    if len(pixels) < 2:  # of which batch norms can make something
        return 0.0
    squares: list[Tensor] = []
    hook = head.register_forward_pre_hook(
        lambda _, given: squares.append(given[0].float().square().sum(dim=1).mean())
    )
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    set_training_mode(model)
    try:
        with torch.no_grad():
            model(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).to(device))
            for buffer, before in buffers:
                buffer.copy_(before)
    finally:
        hook.remove()
    return float(squares[0])
