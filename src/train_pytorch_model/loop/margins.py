"""How surely the network prefers each training image's category to all others, over the epochs so far.

Wrong labels are learned late, against what the other images teach: the mean over the epochs of the margin
between the given category and the best other one finds them, at no extra pass (Pleiss et al. 2020,
Identifying Mislabeled Data using the Area Under the Margin Ranking). The margin here is squashed to the
probability of the given category against the other one, so that no epoch outweighs the others.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World

UNIT = 1 << 16  # integers per 1.0: sums of integers are the same in any order, on any number of processes
MIXED = -1  # in place of the margin of an image that CutMix has changed
MAX_CATEGORIES = 1 << 18
MAX_EPOCH = (1 << 13) - 1
NUM_ROWS = 3


def margins_of(logits: Tensor, targets: Tensor) -> Tensor:
    """(2, B), int32: margins from 0 to `UNIT`, or `MIXED`; and the best other categories.

    From logits (B, C), and targets (B,) or their probabilities (B, C). Never waits for the device.
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
    """The margins of all training images, 12 bytes each, on the device; adding never waits for it."""

    def __init__(self, num_images: int, device: torch.device) -> None:
        self._values = torch.zeros(NUM_ROWS, num_images, dtype=torch.int32, device=device)
        self._added: list[tuple[np.ndarray, Tensor]] = []

    def add(self, indices: np.ndarray, epoch: int, margins: Tensor) -> None:
        """Add a step of an epoch, counted from 1: the indices of its images (B,), and `margins_of` them."""
        latest = min(epoch, MAX_EPOCH) * MAX_CATEGORIES
        self._added.append((indices, torch.stack([*margins, margins[1] + latest])))

    @property
    def values(self) -> Tensor:
        """(3, number of images), int32: sums of margins, their counts, and the best other category last seen.

        The latter is the epoch times `MAX_CATEGORIES` plus the category.
        """
        if self._added:
            indices = np.concatenate([indices for indices, _ in self._added])
            margins, _, latest = torch.cat([rows for _, rows in self._added], dim=1)
            is_counted = margins != MIXED
            index = torch.from_numpy(indices).to(self._values.device)[is_counted]
            self._values[0].index_add_(0, index, margins[is_counted])
            self._values[1].index_add_(0, index, torch.ones_like(margins[is_counted]))
            self._values[2].scatter_reduce_(0, index, latest[is_counted], "amax")
            self._added.clear()
        return self._values

    def restore(self, values: Tensor | None) -> None:
        """Return to earlier values; None for none."""
        self._added.clear()
        self._values.zero_()
        if values is not None:
            self._values.copy_(values)

    def reduce(self, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Mean margins (N,), float64, NaN for none, and best other categories (N,), over all processes.

        Waits for the device, and communicates if there are several.
        """
        sums, counts = world.sum(self.values[:2]).numpy(force=True)
        (latest,) = world.max(self.values[2:]).numpy(force=True)
        means = np.where(counts > 0, sums / UNIT / np.maximum(counts, 1), np.nan)
        return means, latest % MAX_CATEGORIES


def merge(values: Sequence[Tensor]) -> Tensor:
    """The values of several processes as those of one."""
    stacked = torch.stack([*values])  # (processes, 3, number of images)
    return torch.cat([stacked[:, :2].sum(dim=0, dtype=torch.int32), stacked[:, 2:].amax(dim=0)])
