"""Features of a frozen backbone: computed once for each view of an image, and kept for later
epochs.

A view is an image as it is, or mirrored. Features are computed when a step first needs them, of
equally many images at once in every epoch: libraries choose their algorithms by that number, and
the last bits depend on them. A resumed run computes what it needs once more, beside other images,
and gets the same bits.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.data.cache_plan import Views
from train_pytorch_model.data.dataset import EpochPlan
from train_pytorch_model.data.epoch_plan import PlannedBatch

Compute = Callable[
    [Tensor], Tensor
]  # uint8 images (B, 3, H, W), on the device → their features (B, D)


class KeptFeatures:
    """The known features, in memory that the processes of a machine share; each computes its
    steps'."""

    def __init__(
        self, memory: memoryview, views: Views, dtype: torch.dtype, compute: Compute, at_once: int
    ) -> None:
        """`memory` has room for all views: their features, then for each a byte, whether they are
        known.

        `compute` gets at most `at_once` images.
        """
        self._num_views, self._compute, self._at_once = views.per_image, compute, at_once
        num_slots = len(memory) // views.num_bytes * views.per_image
        values = torch.frombuffer(memory, dtype=dtype, count=num_slots * views.width)
        self._values = values.view(num_slots, views.width)
        self._is_known = np.frombuffer(memory, np.bool_, num_slots, offset=values.nbytes)

    def to_compute(self, current: EpochPlan) -> EpochPlan:
        """The part of a pass whose features are not known yet, in batches of what is computed at
        once.
        """
        none = np.empty(0, np.int64)  # a process may have no batch
        indices = np.concatenate([none, *(planned.indices for planned in current.batches)])
        indices = indices[~self._is_known[self._slots(current, indices)]]
        starts = range(0, len(indices), self._at_once)
        plan = [
            PlannedBatch(part := indices[start : start + self._at_once], len(part))
            for start in starts
        ]
        return replace(current, key=f"{current.key}, {zlib.crc32(indices)}", batches=plan)

    def batches(self, current: EpochPlan, to_compute: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of a pass with features in place of images; `to_compute` are those of that
        pass.
        """
        unreadable: dict[int, str] = {}
        for planned in current.batches:
            slots = self._slots(current, planned.indices)
            while not (self._is_known[slots] | np.isin(planned.indices, list(unreadable))).all():
                batch = next(to_compute)
                unreadable |= batch.unreadable
                if len(batch.indices):
                    known = self._slots(current, batch.indices)
                    self._values[torch.from_numpy(known)] = self._compute(batch.images).to(
                        self._values
                    )
                    self._is_known[known] = True  # last: other processes look here first
            is_unreadable = ~self._is_known[slots]
            indices = planned.indices[~is_unreadable]
            yield Batch(
                images=self._values[torch.from_numpy(slots[~is_unreadable])],
                targets=torch.from_numpy(current.dataset.class_indices[indices].astype(np.int64)),
                indices=indices,
                global_count=planned.global_count,
                unreadable={
                    int(index): unreadable[index] for index in planned.indices[is_unreadable]
                },
            )

    def _slots(self, current: EpochPlan, indices: np.ndarray) -> np.ndarray:
        """(N,), int64: where the views of N images of a pass are."""
        dataset = current.dataset
        numbers = dataset.cache.first + dataset.directory.rows[indices].astype(np.int64)
        is_mirrored = [
            dataset.preparation.is_mirrored(dataset.seed_of(int(index))) for index in indices
        ]
        slots: np.ndarray = numbers * self._num_views + np.array(is_mirrored, np.int64)
        return slots
