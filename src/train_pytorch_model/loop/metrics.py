"""What a pass over images finds out, kept on the device: loss and accuracy, outcomes and margins of
images.

Loss and accuracy are sums that are reduced and divided once. A margin says how surely the network
prefers an image's category to all others. Wrong labels are learned late, against what the other
images teach: the mean over the epochs until then of the margin between the given category and the
best other one finds them (Pleiss et al. 2020, Identifying Mislabeled Data using the Area Under the
Margin Ranking). It is squashed to the probability of the given category against the other one, so
that no epoch outweighs the others.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.classifier import exact_device
from train_pytorch_model.measures.evaluation import TOP_K, Outcomes

UNIT = (
    1 << 16
)  # integers per 1.0: sums of integers are the same in any order, on any number of processes
MIXED = -1  # in place of the margin of an image that CutMix has changed
MAX_CATEGORIES = 1 << 18
MAX_EPOCH = (1 << 13) - 1


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
        ranks = _ranks(logits, targets if targets.ndim == 1 else targets.argmax(dim=1))
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


class OutcomeRows:
    """The outcome of each image of a pass, 40 bytes each on the device: adding never waits for it."""

    def __init__(self, device: torch.device) -> None:
        self._rows = [torch.empty(5, 0, dtype=torch.float64, device=exact_device(device))]

    @torch.no_grad()
    def add(self, logits: Tensor, targets: Tensor) -> None:
        """Add a batch of logits (B, C) and targets (B,)."""
        logits, targets = logits.to(self._rows[0].device), targets.to(self._rows[0].device)
        predicted = logits.argmax(dim=1)  # the first on ties
        chosen = torch.stack([predicted, targets], dim=1)  # (B, 2)
        confidences, of_target = logits.double().softmax(dim=1).gather(1, chosen).unbind(dim=1)
        columns = (targets, predicted, confidences, of_target, _ranks(logits, targets))
        self._rows.append(torch.stack([column.double() for column in columns]))

    def outcomes(self) -> Outcomes:
        """The outcomes of all batches, in their order. Waits for the device."""
        targets, predicted, confidences, of_target, ranks = (
            torch.cat(self._rows, dim=1).cpu().numpy()
        )
        targets, predicted, ranks = (
            column.astype(np.int64) for column in (targets, predicted, ranks)
        )
        return Outcomes(targets, predicted, confidences, of_target, ranks)


def _ranks(logits: Tensor, targets: Tensor) -> Tensor:
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


def margins_of(logits: Tensor, targets: Tensor) -> Tensor:
    """(2, B), int32: margins, 0 to `UNIT`, or `MIXED`; best others.

    Targets: (B,), or (B, C) like logits.
    """
    logits, is_mixed = logits.detach().float(), None
    if targets.ndim == 2:
        certainty, targets = targets.max(dim=1)
        is_mixed = certainty < 1
    given = targets.unsqueeze(1)  # (B, 1)
    best, others = logits.scatter(1, given, -torch.inf).max(dim=1)
    margins = (torch.sigmoid(logits.gather(1, given).squeeze(1) - best) * UNIT).round().int()
    if is_mixed is not None:
        margins = margins.masked_fill(is_mixed, MIXED)
    return torch.stack([margins, others.int()])


class Margins:
    """The margins of all training images, 24 bytes each, on the device; adding never waits for it."""

    def __init__(self, num_images: int, device: torch.device) -> None:
        self._values = torch.zeros(2, 3, num_images, dtype=torch.int32, device=device)
        self._added: list[tuple[np.ndarray, Tensor]] = []

    def add(self, indices: np.ndarray, epoch: int, margins: Tensor) -> None:
        """Add a step of an epoch, counted from 1: the indices of its images (B,), and `margins_of`
        them.
        """
        latest = min(epoch, MAX_EPOCH) * MAX_CATEGORIES
        self._added.append((indices, torch.stack([margins[0], margins[1] + latest])))

    @property
    def values(self) -> Tensor:
        """(2, 3, N), int32, all and counting: sums, counts, last best other + `MAX_CATEGORIES` x
        epoch.
        """
        if self._added:
            indices = np.concatenate([indices for indices, _ in self._added])
            rows = torch.cat([rows for _, rows in self._added], dim=1)
            is_known = rows[0] != MIXED
            margins, latest = rows[:, is_known]
            index = torch.from_numpy(indices).to(self._values.device)[is_known]
            self._values[0, 0].index_add_(0, index, margins)
            self._values[0, 1].index_add_(0, index, torch.ones_like(margins))
            self._values[0, 2].scatter_reduce_(0, index, latest, "amax")
            self._added.clear()
        return self._values

    def count(self) -> None:
        """Let all epochs so far count."""
        self._values[1] = self.values[0]

    def restore(self, values: Tensor) -> None:
        """Return to earlier values."""
        self._added.clear()
        self._values.copy_(values)

    def reduce(self, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Mean margins (N,), float64, NaN for none, and best other categories (N,), of all
        processes.
        """
        sums, counts = world.sum(self.values[1, :2]).numpy(force=True)
        (latest,) = world.max(self.values[1, 2:]).numpy(force=True)
        means = np.where(counts > 0, sums / UNIT / np.maximum(counts, 1), np.nan)
        return means, latest % MAX_CATEGORIES


def merge(values: Sequence[Tensor]) -> Tensor:
    """The values of `Margins` of several processes as those of one."""
    stacked = torch.stack([*values], dim=2)  # (2, 3, processes, number of images)
    return torch.cat(
        [stacked[:, :2].sum(dim=2, dtype=torch.int32), stacked[:, 2:].amax(dim=2)], dim=1
    )
