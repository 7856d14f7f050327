"""What a pass over images finds out, kept on the device: loss and accuracy, outcomes and margins of
images.

Loss and accuracy are sums that are reduced and divided once. A margin says how surely the network
prefers an image's category to all others. Wrong labels are learned late, against what the other
images teach: the mean over the epochs until then of the margin between the given category and the
best other one finds them (Pleiss et al. 2020, Identifying Mislabeled Data using the Area Under the
Margin Ranking). It is squashed to the probability of the given category against the other one, so
that no epoch outweighs the others.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation.metrics import TOP_K
from train_pytorch_model.image_classifier.classifier import exact_device


def read_later(values: Tensor) -> Callable[[], list[float]]:
    """Start copying values to the host, or read them on a CPU; called a step later, this does not
    wait.
    """
    if values.device.type != "cuda":
        read: list[float] = values.flatten().tolist()
        return lambda: read
    copy = torch.empty(values.numel(), dtype=values.dtype, pin_memory=True)
    copy.copy_(values.flatten(), non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def wait() -> list[float]:
        copied.synchronize()
        numbers: list[float] = copy.tolist()
        return numbers

    return wait


@dataclass(frozen=True)
class Metrics:
    """Means over the images of a pass."""

    loss: float  # mean cross entropy in nats; NaN over no images
    top1: (
        float  # fraction of images whose true category has the highest logit; ties go to the first
    )
    top5: float  # fraction of images whose true category is among the five, or all, most probable
    images: int


class Sums:
    """The running sums of a pass, on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(4, dtype=torch.float64, device=exact_device(device))
        """Loss, top-1 hits, top-5 hits, images: float64 for exact counts and a loss that does not
        drift."""

    @torch.no_grad()
    def add(self, loss_sum: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: the sum of its losses, logits (B, C), targets (B,) or their probabilities
        (B, C).
        """
        ranks = ranks_of(logits, targets if targets.ndim == 1 else targets.argmax(dim=1))
        device = self.values.device
        count = torch.full((), len(targets), device=device)
        sums = loss_sum, (ranks == 0).sum(), (ranks < TOP_K).sum(), count
        self.values += torch.stack([each.to(device).double() for each in sums])

    def reduce_later(self, world: World) -> Callable[[], Metrics]:
        """The means over all processes for the current sums; communicates if there are several.

        Called a step later, the result does not wait for the device.
        """
        read = read_later(world.sum(self.values))

        def means() -> Metrics:
            loss_sum, top1_hits, top5_hits, images = read()
            if images == 0:
                return Metrics(np.nan, 0.0, 0.0, 0)
            return Metrics(loss_sum / images, top1_hits / images, top5_hits / images, int(images))

        return means


def ranks_of(logits: Tensor, targets: Tensor) -> Tensor:
    """(B,): the rank of the true category, counted from 0; of equal logits the first ranks higher.

    One rule for top-1 and top-5: `topk` orders ties arbitrarily, and in bfloat16 many logits are
    equal. NaN ranks above all other logits, but last for the true category, so that it never counts
    as a hit.
    """
    of_target = logits.gather(1, targets.unsqueeze(1))  # (B, 1)
    is_later = torch.arange(logits.shape[1], device=logits.device) >= targets.unsqueeze(
        1
    )  # or itself
    behind = (logits < of_target) | ((logits == of_target) & is_later)
    return logits.shape[1] - behind.sum(dim=1)
