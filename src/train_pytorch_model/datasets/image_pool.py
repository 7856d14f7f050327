"""Training and validation images as one pool, from which folds and samples are drawn."""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.datasets.grouping import group_across
from train_pytorch_model.inputs.opening import CheckedImages
from train_pytorch_model.quality.folds import NUM_FOLDS, stratified_folds


@dataclass(frozen=True)
class ImagePool:
    """N images, numbered on from the training to the validation images."""

    checked: CheckedImages
    targets: np.ndarray  # (N,), int64
    hashes: np.ndarray  # (N, 16), uint8: perceptual hashes
    groups: np.ndarray  # (N,), int64: images of the same number stay together
    seed: int

    @property
    def num_training(self) -> int:
        return len(self.checked.training)

    @property
    def categories(self) -> tuple[str, ...]:
        return self.checked.training.categories

    def __len__(self) -> int:
        return len(self.targets)

    def sample(self, count: int) -> np.ndarray:
        """Return about so many indices, ascending: of each category its share, whole groups."""
        parts = -(-len(self) // count)  # rounded up
        all_images = np.arange(len(self))
        if parts == 1:
            return all_images
        return np.flatnonzero(self.folds(all_images, parts) == 0)

    def folds(self, indices: np.ndarray, count: int = NUM_FOLDS) -> np.ndarray:
        """Return the fold (M,) of each of the images at `indices` (M,)."""
        return stratified_folds(self.targets[indices], self.groups[indices], self.seed, count)


def pool_of(checked: CheckedImages, hashes: np.ndarray, group_by: str, seed: int) -> ImagePool:
    """Return the pool of checked images with perceptual hashes (N, 16).

    Raises `ParameterError` for an expression to group by that is invalid.
    """
    directories = [checked.training, checked.validation]
    targets = np.concatenate([images.class_indices for images in directories])
    return ImagePool(
        checked=checked,
        targets=targets.astype(np.int64),
        hashes=hashes,
        groups=group_across(directories, hashes, group_by),
        seed=seed,
    )
