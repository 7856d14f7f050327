"""Other projects' recipes, written in plain PyTorch, compared with the program's defaults.

Sources: the classic component as its users saw it; torchvision's `references/classification`
without options; `train.py` of timm 1.0 without options. All use the program's batch size, learning
rate, number of epochs and initial weights, and are evaluated on the same pixels.
"""

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from PIL import Image
from torch import nn
from torchvision.transforms import v2

from tests.benchmarks.accuracy import ours
from tests.benchmarks.accuracy.comparison import (
    Contender,
    Epoch,
    Setting,
    arguments,
    compare,
    judged,
)
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.image_classifier.architectures import build, head_of
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.image_classifier.pixels import read_pixels
from train_pytorch_model.image_classifier.spec import IMAGENET_MEAN, IMAGENET_STD
from train_pytorch_model.networks.frozen_backbone import freeze_backbone
from train_pytorch_model.networks.load_weights import load_weights
from train_pytorch_model.training.state import patience_spent

HALF = (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Peer:
    """A recipe in float32 with one learning rate per epoch."""

    rate: Callable[[float, int, int], float]
    """Peak, epoch counted from 0, epochs → learning rate."""
    transform: Callable[[tuple[int, int]], v2.Transform] | None = None
    """(height, width) → transform of training images; None for that of validation."""
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    weight_decay: float = 1e-4
    decays_norms: bool = True
    nesterov: bool = False
    label_smoothing: float = 0.0
    drop_last: bool = False
    zero_init: bool = False
    """Whether the last norm of residual blocks starts from zero, when training from scratch."""
    stops_early: bool = False
    trains_head_only: bool = False


def classic_rate(peak: float, epoch: int, epochs: int) -> float:
    """Polynomial decay of power 2, down to 1e-7."""
    return 1e-7 + (peak - 1e-7) * (1 - epoch / epochs) ** 2


def timm_rate(peak: float, epoch: int, epochs: int) -> float:
    """Linear warmup from 1e-5 over five epochs, then the rest of a cosine over all epochs."""
    if epoch < 5:
        return 1e-5 + (peak - 1e-5) * epoch / 5
    return peak * (1 + math.cos(math.pi * epoch / epochs)) / 2


def resized_crop_and_flip(size: tuple[int, int]) -> v2.Compose:
    """Random crops of 8 to 100 % of the area, and flips."""
    return v2.Compose([v2.RandomResizedCrop(size), v2.RandomHorizontalFlip()])


def timm_transform(size: tuple[int, int]) -> v2.Compose:
    """`resized_crop_and_flip` with colour jitter."""
    return v2.Compose(
        [v2.RandomResizedCrop(size), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.4)]
    )


CLASSIC = Peer(rate=classic_rate, mean=HALF, std=HALF, nesterov=True, stops_early=True)
TORCHVISION = Peer(
    rate=lambda peak, epoch, _: peak * 0.1 ** (epoch // 30), transform=resized_crop_and_flip
)
TIMM = Peer(
    rate=timm_rate,
    transform=timm_transform,
    weight_decay=2e-5,
    decays_norms=False,
    nesterov=True,
    label_smoothing=0.1,
    drop_last=True,
    zero_init=True,
)


def train(setting: Setting, peer: Peer) -> Iterator[Epoch]:
    """Yield each epoch of a training by a peer's recipe."""
    config, device = setting.config, setting.device
    inputs = setting.open(
        Recipe(image_size=setting.images.image_size),
        zero_init=peer.zero_init and setting.weights is None,
    )
    training, framing = inputs.training, inputs.framing
    paths = [training.path(index) for index in range(len(training))]
    images = [Image.fromarray(read_pixels(path, framing.short_side)) for path in paths]
    pixels, targets = ours.held_out(inputs, framing, device)
    torch.manual_seed(config.random_seed)
    network = build(inputs.model.architecture, inputs.model.option, len(inputs.categories))
    head = head_of(inputs.model.architecture, network)
    load_weights(network, head, inputs.model.weights_path)  # a new head stays random
    if peer.trains_head_only:
        freeze_backbone(network, inputs.model.architecture)
    model = nn.Sequential(Normalize(peer.mean, peer.std), network).to(device)
    model = model.to(memory_format=torch.channels_last)
    augment = (
        framing.apply if peer.transform is None else peer.transform((framing.height, framing.width))
    )
    optimizer = _optimizer(network, peer)
    patience, losses = config.patience if peer.stops_early else config.epochs + 1, list[float]()
    for epoch in range(config.epochs):
        for group in optimizer.param_groups:
            group["lr"] = peer.rate(config.learning_rate, epoch, config.epochs)
        network.train()
        for indices in torch.split(torch.randperm(len(images)), config.batch_size):
            if len(indices) < config.batch_size and (peer.drop_last or len(indices) == 1):
                continue
            batch = torch.stack(
                [v2.functional.to_image(augment(images[index])) for index in indices]
            )
            labels = torch.from_numpy(training.class_indices[indices.numpy()]).long()
            logits = model(batch.to(device))
            loss = nn.functional.cross_entropy(
                logits, labels.to(device), label_smoothing=peer.label_smoothing
            )
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        outcome = judged(model, pixels, targets)
        yield outcome
        losses.append(float(outcome.losses.mean()))
        if patience_spent(losses) >= patience:
            return


CONTENDERS = (
    Contender("ours, at its defaults", ours.train),
    Contender("classic component", functools.partial(train, peer=CLASSIC), keep="last"),
    Contender("torchvision's reference", functools.partial(train, peer=TORCHVISION), keep="last"),
    Contender("timm's defaults", functools.partial(train, peer=TIMM), keep="highest top-1"),
)


def _optimizer(network: nn.Module, peer: Peer) -> torch.optim.SGD:
    decayed = [p for p in network.parameters() if p.ndim > 1 or peer.decays_norms]
    others = [p for p in network.parameters() if p.ndim <= 1 and not peer.decays_norms]
    groups = [
        {"params": decayed, "weight_decay": peer.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.SGD(groups, lr=0.0, momentum=0.9, nesterov=peer.nesterov, fused=True)


if __name__ == "__main__":
    compare(CONTENDERS, arguments(__doc__).parse_args())
