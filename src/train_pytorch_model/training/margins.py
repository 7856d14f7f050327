"""How surely a network prefers the given category of each training image, epoch by epoch.

Wrong labels are learned late, against what the other images teach: the mean
over the epochs until then of the margin between the given category and the best other one finds them (Pleiss
et al. 2020, Identifying Mislabeled Data using the Area Under the Margin Ranking). It is squashed to the
probability of the given category against the other one, so that no epoch outweighs the others.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World

UNIT = (
    1 << 16
)  # integers per 1.0: sums of integers are the same in any order, on any number of processes
MIXED = -1  # in place of the margin of an image that CutMix has changed
MAX_CATEGORIES = 1 << 18
MAX_EPOCH = (1 << 13) - 1


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
