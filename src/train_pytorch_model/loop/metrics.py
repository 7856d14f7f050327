"""Loss and accuracy of a pass over images, as sums that are reduced and divided once; and of each image."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.device import exact_device
from train_pytorch_model.loop.read_later import read_later
from train_pytorch_model.measures.evaluation import TOP_K, Outcomes


@dataclass(frozen=True)
class Metrics:
    """Means over the images of a pass."""

    loss: float
    """Mean cross entropy in nats; NaN over no images."""
    top1: float
    """Fraction of images, from 0 to 1, whose true category has the highest logit; ties go to the first."""
    top5: float
    """Fraction of images whose true category is among the five most probable, or all if there are fewer."""
    images: int


class Sums:
    """The running sums of a pass, on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self.values = torch.zeros(4, dtype=torch.float64, device=exact_device(device))
        """Loss, top-1 hits, top-5 hits, images: float64 for exact counts and a loss that does not drift."""

    @torch.no_grad()
    def add(self, loss_sum: Tensor, logits: Tensor, targets: Tensor) -> None:
        """Add a batch: the sum of its losses, logits (B, C), targets (B,) or their probabilities (B, C)."""
        ranks = _ranks(logits, targets if targets.ndim == 1 else targets.argmax(dim=1))
        device = self.values.device
        self.values += torch.stack(
            [
                loss_sum.detach().to(device).double(),
                (ranks == 0).sum().to(device).double(),
                (ranks < TOP_K).sum().to(device).double(),
                torch.full((), len(targets), dtype=torch.float64, device=device),
            ]
        )

    def reduce(self, world: World) -> Metrics:
        """The means over all processes. Waits for the device, and communicates if there are several."""
        return self.reduce_later(world)()

    def reduce_later(self, world: World) -> Callable[[], Metrics]:
        """`reduce` for the current sums; called a step later, the result does not wait for the device."""
        sums = read_later(world.sum(self.values))
        return lambda: _means(*sums())


def _means(loss_sum: float, top1_hits: float, top5_hits: float, images: float) -> Metrics:
    if images == 0:
        return Metrics(float("nan"), 0.0, 0.0, 0)
    return Metrics(loss_sum / images, top1_hits / images, top5_hits / images, int(images))


class OutcomeRows:
    """The outcome of each image of a pass, 40 bytes each on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._rows = [torch.empty(5, 0, dtype=torch.float64, device=exact_device(device))]

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch of logits (B, C) and targets (B,)."""
        logits, targets = logits.to(self._rows[0].device), targets.to(self._rows[0].device)
        probabilities = logits.double().softmax(dim=1)  # (B, C)
        predicted = logits.argmax(dim=1)  # the first on ties
        chosen = torch.stack([predicted, targets], dim=1)  # (B, 2)
        confidences, of_target = probabilities.gather(1, chosen).unbind(dim=1)
        columns = (targets, predicted, confidences, of_target, _ranks(logits, targets))
        self._rows.append(torch.stack([column.double() for column in columns]))

    def outcomes(self) -> Outcomes:
        """The outcomes of all batches, in their order. Waits for the device."""
        targets, predicted, confidences, of_target, ranks = torch.cat(self._rows, dim=1).cpu().numpy()
        return Outcomes(
            targets=targets.astype(np.int64),
            predicted=predicted.astype(np.int64),
            confidences=confidences,
            target_probabilities=of_target,
            target_ranks=ranks.astype(np.int64),
        )


def _ranks(logits: Tensor, targets: Tensor) -> Tensor:
    """(B,): the rank of the true category, counted from 0; of equal logits the first ranks higher.

    One rule for top-1 and top-5: `topk` orders ties arbitrarily, and in bfloat16 many logits are equal. NaN
    ranks above all other logits, but last for the true category, so that it never counts as a hit.
    """
    of_target = logits.gather(1, targets.unsqueeze(1))  # (B, 1)
    is_later = torch.arange(logits.shape[1], device=logits.device) >= targets.unsqueeze(1)  # or itself
    behind = (logits < of_target) | ((logits == of_target) & is_later)
    return logits.shape[1] - behind.sum(dim=1)
