"""Images that look like those on which a model was trained: it may have memorized them."""

from dataclasses import dataclass

import numpy as np

from train_pytorch_model.config.wording import counted, worded
from train_pytorch_model.quality.near_duplicates import find_pairs, look_like_known
from train_pytorch_model.quality.twins import TWINS


@dataclass(frozen=True)
class TrainingLookAlikes:
    """Images of a data set that look like an image on which the model was trained."""

    images: int
    total: int  # of the whole data set
    accuracy_without: float | None  # the accuracy on the others; None without any

    @classmethod
    def of(cls, looks_alike: np.ndarray, is_hit: np.ndarray) -> "TrainingLookAlikes":
        """Count the images that look alike, and average the hits among the others.

        `looks_alike` (N,), bool, is of all images; `is_hit` (M,), bool, says whether the
        predictions for the others are right.
        """
        accuracy_without = float(is_hit.mean()) if len(is_hit) else None
        return cls(int(looks_alike.sum()), len(looks_alike), accuracy_without)

    def describe(self, accuracy: float | None = None, measure: str = "accuracy") -> str:
        """Return what that means, in words; empty without any such images.

        They are evaluated images or, with their accuracy, validation images. The `measure` is what
        their accuracy is called.
        """
        if not self.images:
            return ""
        if accuracy is None:
            return (
                f"{self._count('image')} like an image on which the model was trained:"
                f" {self._accuracy_of_others(f'the {measure}')}."
            )
        together = worded("`split` keeps them together", "`fit` keeps those of one folder together")
        return (
            f"{self._count('validation image')} like a training image: the {measure} of"
            f" {accuracy:.1%} includes them, and {self._accuracy_of_others('it')}."
            f" {TWINS} lists the pairs; {together}."
        )

    def _count(self, kind: str) -> str:
        verb = "looks" if self.images == 1 else "look"
        return f"{self.images:,} of {counted(self.total, kind, f'{kind}s')} {verb}"

    def _accuracy_of_others(self, subject: str) -> str:
        if self.accuracy_without is None:
            return "there are no others"
        return f"on the others {subject} is {self.accuracy_without:.1%}"


def compare_with_training(
    training_hashes: np.ndarray, hashes: np.ndarray, is_hit: np.ndarray
) -> TrainingLookAlikes | None:
    """Compare evaluated images with those that a model was trained on, by their perceptual hashes.

    The latter are `training_hashes` (K, 16), uint8, and the former `hashes` (N, 16), uint8;
    `is_hit` (N,), bool, says whether the predictions are right. Return None if K is 0.
    """
    num_training = len(training_hashes)
    if num_training == 0:
        return None
    pairs = find_pairs(np.concatenate([training_hashes, hashes]), num_training)
    looks_alike = look_like_known(pairs, num_training, num_training + len(hashes))
    return TrainingLookAlikes.of(looks_alike, is_hit[~looks_alike])
