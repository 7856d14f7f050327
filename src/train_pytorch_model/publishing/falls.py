"""By how much a model's accuracy and its confidences fall where validation images are degraded."""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.formats.histograms import Falls
from train_pytorch_model.publishing.degraded import DEGRADATIONS
from train_pytorch_model.quality.estimated_accuracy import Energies
from train_pytorch_model.training.plan import Plan

MAX_IMAGES = 100  # of each degradation
MIN_IMAGES = 8  # of fewer, the falls are a matter of chance
IMAGES_AT_ONCE = 32  # that go through the network
MAX_FRACTION = 0.02  # of the passes through the network that the training took on a process
PASSES_OF_A_STEP = 3  # forward, and twice as much backward

# Frames (B, H, W, 3), uint8, to probabilities (B, C) and energies (B,).
Predict = Callable[[Tensor], tuple[np.ndarray, np.ndarray]]


def images_of_each(plan: Plan, epochs: int) -> int:
    """Return of how many images a degradation may be tried, which takes little of the training.

    The main process tries them alone, and the others wait.
    """
    passes = _passes(plan, epochs) / plan.world.size
    number = int(MAX_FRACTION * passes / len(DEGRADATIONS))
    return min(number, MAX_IMAGES) if number >= MIN_IMAGES else 0


def _passes(plan: Plan, epochs: int) -> float:
    """Return how many images of full size could have gone through the network in the training."""
    inputs = plan.inputs
    if plan.cache.views:
        return len(inputs.training)  # their features are computed once
    sizes = [framing.num_pixels / inputs.framing.num_pixels for framing in plan.framings[:epochs]]
    passes = 1 if inputs.recipe.freeze_backbone else PASSES_OF_A_STEP
    return passes * sum(sizes) * len(inputs.training) + epochs * len(inputs.validation)


class FallsMeter:
    """Degrades images, a few at a time, and counts what becomes of their predictions."""

    def __init__(self, predict: Predict, energies: np.ndarray, images: int, of_each: int) -> None:
        """Energies are those of all validation images (N,).

        Each degradation is tried on `of_each` of so many images, evenly spaced.
        """
        self._predict = predict
        self._validation = energies
        self._energies = Energies(float(energies.mean()), float(energies.std()))
        self._every = max(1, -(-images // of_each))
        # Of each degradation: images, and by how much less their values were in all.
        self._sums = np.zeros((len(DEGRADATIONS), 4))
        self._done = 0

    def add(self, frames: Tensor, outcomes: Outcomes, energies: np.ndarray) -> None:
        """Try some images more: frames (B, H, W, 3), uint8, and what was predicted of them."""
        before = self._values(outcomes.is_hit, outcomes.confidences, energies)
        numbers = self._done + np.arange(len(outcomes))
        rows = np.arange(len(DEGRADATIONS))
        # (24, B): which degradation is tried on which image.
        is_tried = numbers % self._every == (rows % self._every)[:, None]
        if is_tried.any():
            tried, images = np.nonzero(is_tried)
            now = self._try(frames, outcomes.targets, tried, images)
            np.add.at(
                self._sums, tried, np.column_stack([np.ones(len(tried)), before[images] - now])
            )
        self._done += len(outcomes)

    def _try(
        self, frames: Tensor, targets: np.ndarray, tried: np.ndarray, images: np.ndarray
    ) -> np.ndarray:
        """Return the values of images (T,) that were degraded in the ways `tried` (T,): (T, 3)."""
        parts = [self._predict(degraded) for degraded in self._degraded(frames, tried, images)]
        probabilities = np.concatenate([part[0] for part in parts])
        energies = np.concatenate([part[1] for part in parts])
        is_hit = probabilities.argmax(axis=1) == targets[images]
        return self._values(is_hit, probabilities.max(axis=1), energies)

    def _degraded(self, frames: Tensor, tried: np.ndarray, images: np.ndarray) -> Iterator[Tensor]:
        """Yield degraded images, of which as many are in memory as go through the network."""
        for start in range(0, len(tried), IMAGES_AT_ONCE):
            rows = tried[start : start + IMAGES_AT_ONCE]
            chosen = images[start : start + IMAGES_AT_ONCE]
            yield torch.cat(
                [
                    DEGRADATIONS[row](frames[chosen[rows == row]], seed=self._done)
                    for row in np.unique(rows).tolist()
                ]
            )

    @property
    def falls(self) -> Falls | None:
        """Return what was found; None without images."""
        tried = self._sums[self._sums[:, 0] > 0]
        if not len(tried):
            return None
        accuracy, confidence, energy = np.round(tried[:, 1:] / tried[:, :1], 4).T
        excess = self._energies.excess(self._validation)
        return Falls(
            accuracy=accuracy.tolist(),
            confidence=confidence.tolist(),
            rises=(-energy).tolist(),
            energy=self._energies.mean,
            deviation=self._energies.deviation,
            excess=float(excess.mean()),
            excess_deviation=float(excess.std()),
        )

    def _values(
        self, is_hit: np.ndarray, confidences: np.ndarray, energies: np.ndarray
    ) -> np.ndarray:
        """Return what falls, and the excess energy, of each image: (B, 3)."""
        return np.column_stack([is_hit, confidences, self._energies.excess(energies)])
