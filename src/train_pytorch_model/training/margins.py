"""How surely a network prefers the given category of each training image, epoch by epoch.

Wrong labels are learned late, against what the other images teach: the mean over the epochs until
then of the margin between the given category and the best other one finds them (Pleiss et al. 2020,
Identifying Mislabeled Data using the Area Under the Margin Ranking). It is squashed to the
probability of the given category against the other one, so that no epoch outweighs the others.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World

# Integers per 1.0: sums of integers are the same in any order, on any number of processes.
UNIT = 1 << 16
MIXED = -1  # in place of the margin of an image that CutMix has changed
MAX_CATEGORIES = 1 << 18
MAX_EPOCH = (1 << 13) - 1
MIN_COUNTING = 3  # epochs whose margins count: fewer are noise


def margins_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return what a step finds out about its B images: (2, B), int32.

    The first row has their margins, from 0 to `UNIT`, or `MIXED`. The second row has the other
    category that the network prefers, as a class index. Logits are (B, C); targets are class
    indices (B,), or probabilities (B, C).
    """
    logits = logits.detach().float()
    is_mixed = None
    if targets.ndim == 2:
        certainty, targets = targets.max(dim=1)
        is_mixed = certainty < 1
    targets = targets.unsqueeze(1)  # (B, 1)
    of_target = logits.gather(1, targets).squeeze(1)  # (B,)
    of_best_other, best_other = logits.scatter(1, targets, -torch.inf).max(dim=1)
    margins = (torch.sigmoid(of_target - of_best_other) * UNIT).round().int()
    if is_mixed is not None:
        margins = margins.masked_fill(is_mixed, MIXED)
    return torch.stack([margins, best_other.int()])


def label_margins_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the same of images that have any number of categories: (2, B), int32.

    Targets are (B, C). The margin is the probability of the given answer, yes or no, for the
    category for which it is the least probable, and the second row has that category.
    """
    logits = logits.detach().float()
    is_mixed = ((targets > 0) & (targets < 1)).any(dim=1)
    of_given = torch.where(targets > 0.5, logits, -logits)
    margins, category = of_given.sigmoid().min(dim=1)
    units = (margins * UNIT).round().int().masked_fill(is_mixed, MIXED)
    return torch.stack([units, category.int()])


class Margins:
    """The margins of all training images, 24 bytes each, on the device.

    Adding a step never waits for the device. The totals of a number of epochs are (3, N), int32.
    Their first row is the sum of each image's margins, and the second counts them. The third tells
    which other category the network preferred last: its class index, plus `MAX_CATEGORIES` times
    the epoch, so that the later one is the larger one.
    """

    def __init__(self, num_images: int, device: torch.device) -> None:
        self._totals = torch.zeros(3, num_images, dtype=torch.int32, device=device)
        self._counting = torch.zeros_like(self._totals)  # the totals of the epochs that count
        self._steps: list[tuple[np.ndarray, Tensor]] = []  # which are not in the totals yet

    def add(self, indices: np.ndarray, epoch: int, margins: Tensor) -> None:
        """Add a step of an epoch, counted from 1: its image indices (B,), and `margins_of` them."""
        latest = min(epoch, MAX_EPOCH) * MAX_CATEGORIES
        # A copy: the next step may overwrite its output.
        self._steps.append((indices, torch.stack([margins[0], margins[1] + latest])))

    def close_epoch(self, epoch: int, best_epoch: int) -> None:
        """Let all epochs so far count, unless the network learns wrong labels by heart by now."""
        if epoch <= max(MIN_COUNTING, best_epoch):
            self._counting.copy_(self._add_steps())

    def tensor(self) -> Tensor:
        """Return the totals of all epochs, and of those that count, for a checkpoint: (2, 3, N)."""
        return torch.stack([self._add_steps(), self._counting])

    def restore(self, tensor: Tensor) -> None:
        """Return to an earlier `tensor`."""
        self._steps.clear()
        self._totals.copy_(tensor[0])
        self._counting.copy_(tensor[1])

    def reduce(self, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean margins and the last preferred other categories over all processes.

        Collective. The means are (N,), float64, and NaN for an image without a margin; the
        categories are (N,).
        """
        sums, counts = world.sum(self._counting[:2]).numpy(force=True)
        (latest,) = world.max(self._counting[2:]).numpy(force=True)
        means = np.where(counts > 0, sums / UNIT / np.maximum(counts, 1), np.nan)
        return means, latest % MAX_CATEGORIES

    def _add_steps(self) -> Tensor:
        """Add the steps to the totals, all at once, and return these."""
        if self._steps:
            rows = torch.cat([margins for _, margins in self._steps], dim=1)
            indices = np.concatenate([indices for indices, _ in self._steps])
            index = torch.from_numpy(indices).to(rows.device)
            is_plain = rows[0] != MIXED
            margins, latest = rows[:, is_plain]
            index = index[is_plain]

            sums, counts, preferred = self._totals
            sums.index_add_(0, index, margins)
            counts.index_add_(0, index, torch.ones_like(margins))
            preferred.scatter_reduce_(0, index, latest, "amax")
            self._steps.clear()
        return self._totals


def merge(tensors: Sequence[Tensor]) -> Tensor:
    """Return the tensors of the `Margins` of several processes as that of one."""
    stacked = torch.stack([*tensors], dim=2)  # (2, 3, processes, number of images)
    sums_and_counts = stacked[:, :2].sum(dim=2, dtype=torch.int32)
    latest = stacked[:, 2:].amax(dim=2)
    return torch.cat([sums_and_counts, latest], dim=1)
