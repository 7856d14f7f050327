"""Features of a frozen backbone: computed once for each view of an image, and cached for later
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

# Of uint8 images (B, 3, H, W), on the device, to their features (B, D).
ComputeFeatures = Callable[[Tensor], Tensor]
# Of a pass, and of a function that returns the pass after it, to batches of images on the device.
LoadImages = Callable[[EpochPlan, Callable[[], EpochPlan | None]], Iterator[Batch]]


class FeatureCache:
    """The known features, in memory that the processes of a machine share.

    Each process computes those of its steps, unless another one has done so.
    """

    def __init__(
        self,
        memory: memoryview,
        views: Views,
        dtype: torch.dtype,
        compute: ComputeFeatures,
        images_at_once: int,
    ) -> None:
        """`memory` has room for all views: their features, then for each a byte, whether they are
        known.

        `compute` gets at most `images_at_once` images.
        """
        self._views_per_image = views.per_image
        self._compute = compute
        self._images_at_once = images_at_once
        num_slots = len(memory) // views.num_bytes * views.per_image
        values = torch.frombuffer(memory, dtype=dtype, count=num_slots * views.width)
        self._values = values.view(num_slots, views.width)
        self._is_known = np.frombuffer(memory, np.bool_, num_slots, offset=values.nbytes)

    def batches(
        self, current: EpochPlan, following: Callable[[], EpochPlan | None], load_images: LoadImages
    ) -> Iterator[Batch]:
        """Return the batches of a pass, with features in place of images.

        Only the images whose features are not known yet are loaded.
        """

        def following_images() -> EpochPlan | None:
            after = following()
            return None if after is None else self.unknown_part(after)

        image_batches = load_images(self.unknown_part(current), following_images)
        return self.feature_batches(current, image_batches)

    def unknown_part(self, current: EpochPlan) -> EpochPlan:
        """Return the part of a pass whose features are not known yet, in batches to compute."""
        none = np.empty(0, np.int64)  # a process may have no batch
        indices = np.concatenate([none, *(planned.indices for planned in current.batches)])
        indices = indices[~self._is_known[self._slots(current, indices)]]
        batches = []
        for start in range(0, len(indices), self._images_at_once):
            part = indices[start : start + self._images_at_once]
            batches.append(PlannedBatch(part, len(part)))
        return replace(current, key=f"{current.key}, {zlib.crc32(indices)}", batches=batches)

    def feature_batches(
        self, current: EpochPlan, image_batches: Iterator[Batch]
    ) -> Iterator[Batch]:
        """Yield the batches of a pass, with features computed from those of its `unknown_part`."""
        unreadable: dict[int, str] = {}
        for planned in current.batches:
            slots = self._slots(current, planned.indices)
            while not (self._is_known[slots] | np.isin(planned.indices, list(unreadable))).all():
                image_batch = next(image_batches)
                unreadable |= image_batch.unreadable
                self._add(self._slots(current, image_batch.indices), image_batch.images)
            is_known = self._is_known[slots]
            indices = planned.indices[is_known]
            lacking = planned.indices[~is_known].tolist()
            yield Batch(
                images=self._values[torch.from_numpy(slots[is_known])],
                targets=current.dataset.targets(indices),
                indices=indices,
                global_count=planned.global_count,
                unreadable={index: unreadable[index] for index in lacking},
            )

    def _add(self, slots: np.ndarray, images: Tensor) -> None:
        """Compute the features of images, and put them into these slots."""
        if len(slots) == 0:
            return
        features = self._compute(images)
        self._values[torch.from_numpy(slots)] = features.to(self._values)
        self._is_known[slots] = True  # last: other processes look here first

    def _slots(self, current: EpochPlan, indices: np.ndarray) -> np.ndarray:
        """Return where the views of N images of a pass are: (N,), int64."""
        dataset = current.dataset
        numbers = dataset.cache.first + dataset.directory.rows[indices].astype(np.int64)
        seeds = [dataset.seed_of(int(index)) for index in indices]
        is_mirrored = [dataset.preparation.is_mirrored(seed) for seed in seeds]
        slots: np.ndarray = numbers * self._views_per_image + np.array(is_mirrored, np.int64)
        return slots
