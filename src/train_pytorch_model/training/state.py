"""The state of a run: all that changes as it trains, besides the tensors of its engine.

Only the epoch loop (`epoch`) and this module write it. There is no RNG state in it: randomness is a
pure function of seed, epoch, step and image.
"""

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor, nn

from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.multi_label import MultiLabelOutcomes
from train_pytorch_model.evaluation.time_budget import EpochTimes, TimeBudget, budget_of
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.inputs.unreadable_images import (
    UnreadableImage,
    unreadable_images_warning,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES
from train_pytorch_model.training.margins import Margins
from train_pytorch_model.training.metrics import Metrics, Sums
from train_pytorch_model.training.plan import Plan

VERSION = 5  # of `State.values`


@dataclass
class Progress:
    """How far the run is and what has happened so far: the plain values of a checkpoint."""

    epoch: int = 1  # the open epoch, counted from 1
    images_done: int = 0  # images of the open epoch trained so far, over all processes
    steps_done: int = 0  # steps of the open epoch taken so far
    elapsed_s: float = 0.0  # spent on training the open epoch
    waited_s: float = 0.0  # the part of `elapsed_s` spent waiting for images
    validation_s: float = 0.0  # spent on validating the open epoch
    # Spent on the run in its earlier starts; in a checkpoint, in all of them until then.
    run_s: float = 0.0
    times: list[EpochTimes] = field(default_factory=list)  # times of the completed epochs
    lr_factor: float = 1.0  # multiplies the schedule's learning rate; halved at each rollback
    rollbacks: int = 0
    is_out_of_time: bool = False  # whether training has ended because its time was up
    # The metrics of the completed epochs.
    history: list[dict[str, int | float]] = field(default_factory=list)

    newly_unreadable: dict[int, str] = field(default_factory=dict)
    """Images that this process could not read in the open epoch: index → reason."""
    unreadable_indices: dict[str, list[int]] = field(
        default_factory=lambda: {"training": [], "validation": []}
    )
    """Indices of images found unreadable in completed epochs, by role of their data set.

    Not rows, which other files would shift."""
    unreadable_images: list[UnreadableImage] = field(default_factory=list)
    """The images found unreadable in completed epochs, and those found before training."""


@dataclass(frozen=True)
class StepReport:
    """The training of an epoch over all processes, up to and including a step."""

    step: int  # step of the epoch, counted from 1
    lr: float
    metrics: Metrics
    images_per_second: float


@dataclass(frozen=True)
class ImageResults:
    """One process's results for each of its validation images."""

    indices: np.ndarray  # (N,), int64: indices of the images in the given validation dataset
    outcomes: Outcomes | MultiLabelOutcomes  # the outcomes of these N images
    logits: np.ndarray  # (N, C), float32; (0, C) if they would take too much memory
    unreadable: dict[int, str]  # images that could not be read: index → reason


@dataclass
class BestEpoch:
    """The epoch with the lowest validation loss, with a copy of its weights on the CPU."""

    # Counted from 1; 0 for the weights from which training starts, if they are validated, and
    # until a validation loss has been finite.
    epoch: int = 0
    metrics: Metrics = field(default=Metrics(math.inf, 0.0, 0.0, 0))
    weights: dict[str, Tensor] = field(default_factory=dict)

    @property
    def is_found(self) -> bool:
        """Return whether a validation loss has been finite."""
        return bool(self.weights)

    @property
    def is_start(self) -> bool:
        """Return whether the weights from which training starts are the best."""
        return self.is_found and self.epoch == 0

    def observe(self, epoch: int, metrics: Metrics, network: nn.Module) -> None:
        """Copy the network's weights if this validation loss is the lowest so far; NaN never is."""
        if metrics.loss < self.metrics.loss:
            self.epoch = epoch
            self.metrics = metrics
            self.weights = copy_to_cpu(network.state_dict())


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies with a file's strides, so that the bytes that are written are the same."""
    copies = {}
    for name, tensor in tensors.items():
        copy = tensor.detach().to("cpu", copy=True).contiguous()
        # `contiguous` leaves any strides for dimensions of size one.
        copies[name] = copy.flatten().view(copy.shape)
    return copies


def patience_spent(losses: Iterable[float]) -> int:
    """Return how many of the last epochs in a row were not lower in validation loss than before.

    Exactly as the component documents it. NaN and infinity are never lower, and the next epoch is
    compared with the last finite loss. With patience 3 and losses 1.0, 0.9, 0.9, 0.95, 0.95
    training stops after epoch 5: epochs 3, 4 and 5 were not lower than the one before.
    """
    spent = 0
    previous = math.inf
    for loss in losses:
        spent = 0 if loss < previous else spent + 1  # NaN is not lower
        if math.isfinite(loss):
            previous = loss
    return spent


class State:
    """Progress, sums of the open epoch, best epoch, and the images that are left to use."""

    def __init__(self, plan: Plan, hashes: np.ndarray | None = None) -> None:
        """`hashes`, those of the decode cache, are filled in as images are decoded."""
        inputs = plan.inputs
        device = plan.world.device
        self._plan = plan
        self._started_at = time.perf_counter()

        self.progress = Progress(unreadable_images=list(inputs.unreadable_images))
        self.best = BestEpoch()
        self.sums = Sums(device)  # of this process's training images in the open epoch
        self.trained: StepReport | None = None
        """The training of the open epoch, once it is complete. Not saved: it is computed from the
        sums."""
        self.validated: Metrics | None = None
        """The validation of the open epoch, once it is complete."""
        self.validated_further: Mapping[str, float] = {}
        """Metrics of that validation that only the task of the run has, by their names."""
        self.results: dict[int, ImageResults] = {}
        """By epoch: the open one's and the best one's. Not saved: they are computed from the
        weights."""

        self.datasets = {"training": inputs.training, "validation": inputs.validation}
        """Both data sets as they were given, to which indices in the state refer."""
        self.images: dict[str, ImageDirectory] = dict(self.datasets)
        """Both data sets, without the images found unreadable in completed epochs."""
        self.margins = Margins(len(inputs.training), device)
        """The margins of this process's training images, by their index in the given data set."""
        self.hashes = np.empty((0, NUM_BYTES), np.uint8) if hashes is None else hashes
        """(N, 16), uint8: perceptual hashes by row, training images first; zeros if not known yet.
        """

    @property
    def patience_spent(self) -> int:
        return patience_spent(record["Valid loss"] for record in self.progress.history)

    @property
    def is_over(self) -> bool:
        """Whether no epoch or no time is left, or the patience is exhausted."""
        config = self._plan.config
        is_patience_spent = self.patience_spent >= config.patience
        is_last_done = self.progress.epoch > config.epochs
        return is_last_done or is_patience_spent or self.progress.is_out_of_time

    @property
    def run_s(self) -> float:
        """Seconds spent on the run so far, over all its starts."""
        return self.progress.run_s + time.perf_counter() - self._started_at

    def add_margins(self, indices: np.ndarray, margins: Tensor) -> None:
        """Add the margins of a step, whose indices are those in `images["training"]`."""
        # Of a local batch that is too small to be trained there are no margins.
        indices = indices[: margins.shape[1]]
        indices = self.images["training"].indices_in(self.datasets["training"], indices)
        self.margins.add(indices, self.progress.epoch, margins)

    def leave_out(self, role: str, unreadable: Mapping[int, str]) -> None:
        """Leave out from now on, in all processes, what this one could not read.

        `unreadable` maps indices in `images[role]` to reasons. Collective. Warns of these images.
        Raises `InvalidDatasetError` if they are too many.
        """
        before = self.images[role]
        by_any = dict(self._plan.world.gather(list(unreadable.items())))
        self.images[role], records = without_unreadable_images(before, by_any)
        indices = before.indices_in(self.datasets[role], sorted(by_any))
        self.progress.unreadable_indices[role] += indices.tolist()
        self.progress.unreadable_images += records
        if records:
            logger.warning(unreadable_images_warning(records))

    def end_early(self) -> None:
        """Let training end here, as its time is up: an open epoch does not count."""
        self.progress.is_out_of_time = True

    def close_start(self, network: nn.Module) -> None:
        """Keep the weights from which training starts, which have been validated, as the best."""
        assert self.validated
        self.best.observe(0, self.validated, network)
        self.results = {0: self.results[self.progress.epoch]}
        self.progress.validation_s = 0.0
        self.validated = None

    def close_epoch(self, network: nn.Module) -> None:
        """Record the results of the open epoch, which is trained and validated; open the next."""
        progress = self.progress
        trained = self.trained
        validated = self.validated
        assert trained
        assert validated
        self.best.observe(progress.epoch, validated, network)
        self.margins.close_epoch(progress.epoch, self.best.epoch)
        self.results = {
            epoch: results for epoch, results in self.results.items() if epoch == self.best.epoch
        }
        record = {  # under the component's documented names; fractions from 0 to 1
            "epoch": progress.epoch,
            "step": progress.epoch * self._plan.steps_per_epoch,
            "Train images per second": trained.images_per_second,
            "Train loss": trained.metrics.loss,
            "Train error": 1 - trained.metrics.top1,
            "Valid loss": validated.loss,
            "Top 1 accuracy": validated.top1,
            "Top 5 accuracy": validated.top5,
            "Learning rate": trained.lr,
            **self.validated_further,
        }
        progress.history.append(record)
        times = EpochTimes(
            training_s=progress.elapsed_s,
            waiting_s=progress.waited_s,
            validation_s=progress.validation_s,
            threads=torch.get_num_threads(),
        )
        progress.times.append(times)

        progress.epoch += 1
        progress.images_done = 0
        progress.steps_done = 0
        progress.elapsed_s = 0.0
        progress.waited_s = 0.0
        progress.validation_s = 0.0
        self.sums.values.zero_()
        self.trained = None
        self.validated = None

    def budget(self) -> TimeBudget:
        """Return where the time of the run has gone so far."""
        return budget_of(self.progress.times, self.run_s)

    def values(self) -> dict[str, Any]:
        """Return plain values for a checkpoint, besides the best weights and `tensors`."""
        return {
            "version": VERSION,
            "progress": {**asdict(self.progress), "run_s": self.run_s},
            "best": {"epoch": self.best.epoch, "metrics": asdict(self.best.metrics)},
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors of this process for a checkpoint."""
        return {
            "sums": self.sums.values,
            "margins": self.margins.tensor(),
            "hashes": torch.from_numpy(self.hashes),
        }

    def restore(
        self,
        values: Mapping[str, Any],
        tensors: Mapping[str, Tensor],
        best_weights: dict[str, Tensor],
        rolls_back: bool,
    ) -> None:
        """Return to earlier values, tensors and best weights.

        A run that `rolls_back` goes on at half the learning rate; discarded steps have taken their
        time.
        """
        before = self.progress
        progress = msgspec.convert(values["progress"], Progress, str_keys=True)
        # A run that resumes with another number of processes continues at the same image.
        progress.steps_done = math.ceil(progress.images_done / self._plan.global_batch_size)
        if rolls_back:
            progress.lr_factor = before.lr_factor / 2
            progress.rollbacks = before.rollbacks + 1
            progress.run_s = before.run_s
        self.progress = progress
        best = values["best"]
        self.best = BestEpoch(best["epoch"], Metrics(**best["metrics"]), best_weights)

        self.sums.values.copy_(tensors["sums"])
        self.margins.restore(tensors["margins"])
        hashes = tensors["hashes"].numpy()
        if len(self.hashes) == len(hashes):  # other images of them are zeros
            np.maximum(self.hashes, hashes, out=self.hashes)
        self.trained = None
        self.validated = None
        self.images = {
            role: self.datasets[role].without(indices)
            for role, indices in progress.unreadable_indices.items()
        }
