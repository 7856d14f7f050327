"""Loss and accuracy of a pass: sums on the device, which are reduced and divided once."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.metrics import TOP_K
from train_pytorch_model.image_classifier.classifier import exact_device
from train_pytorch_model.training.read_later import read_later

NO_RANK = -1  # of an image without any true category


@dataclass(frozen=True)
class Metrics:
    """Means over the images of a pass."""

    loss: float  # mean of the images' losses in nats; NaN over no images
    # Fraction of images whose category with the highest logit is true; of equal ones, the first.
    # Images without any true category do not count.
    top1: float
    # Fraction of images of which a true category is among the five, or all, most probable.
    top5: float
    images: int


class Sums:
    """The running sums of a pass, on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        # In float64, for exact counts and a loss that does not drift.
        self.values = torch.zeros(5, dtype=torch.float64, device=exact_device(device))
        """(5,): the sum of the losses, then the numbers of top-1 hits, top-5 hits, images, and of
        images that have a true category."""

    @torch.no_grad()
    def add(self, loss_sum: Tensor, ranks: Tensor) -> None:
        """Add a batch: the sum of its losses, and the ranks (B,) of its best true categories.

        The rank of an image without any is `NO_RANK`.
        """
        device = self.values.device
        count = torch.full((), len(ranks), device=device)
        is_ranked = ranks != NO_RANK
        top1_hits = (ranks == 0).sum()
        top5_hits = ((ranks < TOP_K) & is_ranked).sum()
        added = (loss_sum, top1_hits, top5_hits, count, is_ranked.sum())
        self.values += torch.stack([value.to(device).double() for value in added])

    def reduce_later(self, world: World) -> Callable[[], Metrics]:
        """Start adding up the current sums of all processes; return a function of their means.

        Collective. Called a step later, the function does not wait for the device.
        """
        read = read_later(world.sum(self.values))

        def means() -> Metrics:
            loss_sum, top1_hits, top5_hits, images, ranked = read()
            if images == 0:
                return Metrics(np.nan, 0.0, 0.0, 0)
            ranked = max(1, ranked)
            return Metrics(loss_sum / images, top1_hits / ranked, top5_hits / ranked, int(images))

        return means


@torch.no_grad()
def ranks_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the rank of each true category, (B,), counted from 0; of equal logits, first is best.

    Targets are class indices (B,), or probabilities (B, C), of which the largest counts. One rule
    for top-1 and top-5: `topk` orders ties arbitrarily, and in bfloat16 many logits are equal. NaN
    ranks above all other logits, but last for the true category, so that it never counts as a hit.
    """
    if targets.ndim == 2:
        targets = targets.argmax(dim=1)
    targets = targets.unsqueeze(1)  # (B, 1)
    of_target = logits.gather(1, targets)  # (B, 1)
    is_later_or_itself = torch.arange(logits.shape[1], device=logits.device) >= targets
    is_behind = (logits < of_target) | ((logits == of_target) & is_later_or_itself)
    return logits.shape[1] - is_behind.sum(dim=1)


@torch.no_grad()
def best_ranks_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the rank of the most probable true category of each image, (B,), or `NO_RANK`.

    Targets are (B, C): a category is true of an image from a half on.
    """
    is_true = targets >= 0.5
    best = logits.masked_fill(~is_true, -torch.inf).argmax(dim=1)
    return ranks_of(logits, best).masked_fill(~is_true.any(dim=1), NO_RANK)
