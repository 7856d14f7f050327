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

VERSION = 4  # of `State.values`
MIN_COUNTING = 3  # epochs whose margins count: fewer are noise


@dataclass
class Progress:
    """How far the run is and what has happened so far: plain values, as in a checkpoint's manifest."""

    epoch: int = 1  # the open epoch, counted from 1
    images_done: int = 0  # images of the open epoch trained so far, over all processes
    steps_done: int = 0  # steps of the open epoch taken so far
    elapsed_s: float = 0.0  # spent on training the open epoch
    waited_s: float = 0.0  # the part of `elapsed_s` spent waiting for images
    validation_s: float = 0.0  # spent on validating the open epoch
    run_s: float = (
        0.0  # spent on the run so far, over all its starts, when the state was last saved
    )
    times: list[EpochTimes] = field(default_factory=list)  # times of the completed epochs
    unreadable: dict[int, str] = field(
        default_factory=dict
    )  # unreadable here, in the open epoch: index → why
    lr_factor: float = 1.0  # multiplies the schedule's learning rate; halved at each rollback
    rollbacks: int = 0
    history: list[dict[str, int | float]] = field(
        default_factory=list
    )  # the completed epochs' metrics
    unreadable_indices: dict[str, list[int]] = field(
        default_factory=lambda: {"training": [], "validation": []}
    )
    """Indices of images found unreadable in completed epochs; not rows, which other files would
    shift."""
    unreadable_images: list[UnreadableImage] = field(
        default_factory=list
    )  # the same, with those found before training


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
    outcomes: Outcomes  # the outcomes of these N images
    logits: np.ndarray  # (N, C), float32; (0, C) if they would take too much memory
    unreadable: dict[int, str]  # images that could not be read: index → reason


@dataclass
class BestEpoch:
    """The epoch with the lowest validation loss, with a copy of its weights on the CPU."""

    epoch: int = 0  # counted from 1; 0 until a validation loss has been finite
    metrics: Metrics = field(default=Metrics(math.inf, 0.0, 0.0, 0))
    weights: dict[str, Tensor] = field(default_factory=dict)

    def observe(self, epoch: int, metrics: Metrics, network: nn.Module) -> None:
        """Keep the network's weights if this epoch's validation loss is the lowest so far; NaN
        never is.
        """
        if metrics.loss < self.metrics.loss:
            self.epoch, self.metrics, self.weights = (
                epoch,
                metrics,
                copy_to_cpu(network.state_dict()),
            )


def copy_to_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies with a file's strides, and so its bytes; `contiguous` leaves any for dimensions of
    size one.
    """
    copies = {
        name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()
    }
    return {name: copy.flatten().view(copy.shape) for name, copy in copies.items()}


def patience_spent(losses: Iterable[float]) -> int:
    """How many epochs in a row, up to the last one, were not lower in validation loss than the one
    before.

    Exactly as the component documents it. NaN and infinity are never lower, and the next epoch is
    compared with the last finite loss. With patience 3 and losses 1.0, 0.9, 0.9, 0.95, 0.95
    training stops after epoch 5: epochs 3, 4 and 5 were not lower than the one before.
    """
    spent, previous = 0, math.inf
    for loss in losses:
        spent = 0 if loss < previous else spent + 1  # NaN is not lower
        previous = loss if math.isfinite(loss) else previous
    return spent


class State:
    """Progress, sums of the open epoch, best epoch, and the images that are left to use."""

    def __init__(self, plan: Plan, hashes: np.ndarray | None = None) -> None:
        """`hashes`, those of the decode cache, are filled in as images are decoded."""
        self._plan = plan
        self._timed_at = time.perf_counter()
        self.progress = Progress(unreadable_images=list(plan.inputs.unreadable_images))
        self.best = BestEpoch()
        self.sums = Sums(plan.world.device)  # of this process's training images in the open epoch
        self.margins = Margins(
            len(plan.inputs.training), plan.world.device
        )  # by index in the given dataset
        self.given = {"training": plan.inputs.training, "validation": plan.inputs.validation}
        """Both data sets as they were given, to which indices in the state refer."""
        self.images: dict[str, ImageDirectory] = dict(self.given)
        """Both data sets, without the images found unreadable in completed epochs."""
        self.trained: StepReport | None = None
        """The training of the open epoch, once it is complete. Not saved: it is computed from the
        sums."""
        self.validated: Metrics | None = (
            None  # the validation of the open epoch, once it is complete
        )
        self.results: dict[int, ImageResults] = {}
        """By epoch: the open one's and the best one's. Not saved: they are computed from the
        weights."""
        self.hashes = np.empty((0, NUM_BYTES), np.uint8) if hashes is None else hashes
        """(N, 16), uint8: perceptual hashes by row, training images first; zeros if not known yet.
        """

    @property
    def patience_spent(self) -> int:
        return patience_spent(record["Valid loss"] for record in self.progress.history)

    @property
    def is_over(self) -> bool:
        """Whether no epoch is left, or the patience is exhausted."""
        config = self._plan.config
        return self.progress.epoch > config.epochs or self.patience_spent >= config.patience

    def leave_out(self, role: str, unreadable: Mapping[int, str]) -> None:
        """Leave out from now on, in all processes, what this one could not read: index in `images`
        → reason.

        Collective. Warns of these images. Raises `InvalidDatasetError` if they are too many.
        """
        by_any, before = dict(self._plan.world.gather(list(unreadable.items()))), self.images[role]
        self.images[role], records = without_unreadable_images(before, by_any)
        self.progress.unreadable_images += records
        self.progress.unreadable_indices[role] += before.places_in(
            self.given[role], sorted(by_any)
        ).tolist()
        if records:
            logger.warning(unreadable_images_warning(records))

    def close_epoch(self, network: nn.Module) -> None:
        """Record the results of the open epoch, which is trained and validated, and open the next
        one.
        """
        progress, trained, validated = self.progress, self.trained, self.validated
        assert trained
        assert validated
        self.best.observe(progress.epoch, validated, network)
        if progress.epoch <= max(MIN_COUNTING, self.best.epoch):
            self.margins.count()  # later, a network learns wrong labels by heart
        self.results = {
            number: each for number, each in self.results.items() if number == self.best.epoch
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
        }
        progress.history.append(record)
        durations = progress.elapsed_s, progress.waited_s, progress.validation_s
        progress.times.append(EpochTimes(*durations, threads=torch.get_num_threads()))
        progress.epoch, progress.images_done, progress.steps_done = progress.epoch + 1, 0, 0
        progress.elapsed_s = progress.waited_s = progress.validation_s = 0.0
        self.sums.values.zero_()
        self.trained = self.validated = None

    def budget(self) -> TimeBudget:
        """Where the time of the run has gone so far."""
        return budget_of(self.progress.times, self._run_s())

    def values(self) -> dict[str, Any]:
        """Plain values for a checkpoint; the best epoch's weights and `tensors` are not among them."""
        self.progress.run_s, self._timed_at = self._run_s(), time.perf_counter()
        return {
            "version": VERSION,
            "position": asdict(self.progress),
            "best": {"epoch": self.best.epoch, "metrics": asdict(self.best.metrics)},
        }

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of this process for a checkpoint."""
        hashes = torch.from_numpy(self.hashes)
        return {"sums": self.sums.values, "margins": self.margins.values, "hashes": hashes}

    def restore(
        self,
        values: Mapping[str, Any],
        local: Mapping[str, Tensor],
        best: dict[str, Tensor],
        is_undone: bool,
    ) -> None:
        """Return to earlier `values`, `tensors`, best weights; `is_undone` halves the learning
        rate.
        """
        now, run_s = self.progress, self._run_s()
        self.best = BestEpoch(values["best"]["epoch"], Metrics(**values["best"]["metrics"]), best)
        self.progress = msgspec.convert(values["position"], Progress, str_keys=True)
        # A run that resumes with another number of processes continues at the same image.
        self.progress.steps_done = math.ceil(
            self.progress.images_done / self._plan.global_batch_size
        )
        if is_undone:
            self.progress.lr_factor, self.progress.rollbacks = now.lr_factor / 2, now.rollbacks + 1
            # Discarded steps have taken their time.
            self.progress.run_s, self._timed_at = run_s, time.perf_counter()
        self.sums.values.copy_(local["sums"])
        self.margins.restore(local["margins"])
        hashes = local["hashes"].numpy()
        if len(self.hashes) == len(hashes):  # other images of them are zeros
            np.maximum(self.hashes, hashes, out=self.hashes)
        self.trained = self.validated = None
        unreadable = self.progress.unreadable_indices
        self.images = {
            role: self.given[role].without(indices) for role, indices in unreadable.items()
        }

    def _run_s(self) -> float:
        return self.progress.run_s + time.perf_counter() - self._timed_at
