"""One epoch of training and one pass of validation."""

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop.metrics import Metrics, OutcomeRows, Sums
from train_pytorch_model.loop.precision import Precision
from train_pytorch_model.loop.train_state import TrainState
from train_pytorch_model.measures.evaluation import Outcomes

LossSum = Callable[[Tensor, Tensor], Tensor]
"""Logits (B, C), float32, and targets, (B,) or probabilities (B, C) → the sum of the batch's losses."""
LR_FACTOR = "lr_factor"
"""Key of a parameter group: its learning rate as a multiple of the schedule's; 1 if missing."""


class NotFiniteError(Exception):
    """A loss or a weight is infinite or NaN; raised on all processes."""


class Step(Protocol):
    """Takes a training step."""

    @property
    def world(self) -> World:
        """The processes that take the step together."""

    def __call__(self, batch: Batch, lr: float, sums: Sums) -> Tensor:
        """Take the step; return the sum of the losses, detached, without waiting for the device."""


@dataclass(frozen=True)
class TrainStep:
    """One optimizer update on one batch, with all options decided beforehand."""

    model: nn.Module
    """uint8 images (B, 3, H, W) → logits (B, C); averages its gradients over the processes."""
    optimizer: Optimizer
    scaler: GradScaler
    """Scales the loss; disabled unless the precision is float16."""
    loss_sum: LossSum
    precision: Precision
    world: World
    micro_batch: int | None = None
    """Images that fit into memory at once; None if a whole batch does."""
    min_share: int = 1
    """The fewest images that batch norm can work on: a smaller share of a batch is skipped, and a micro-batch
    may exceed `micro_batch` so that no other gets fewer."""

    def __call__(self, batch: Batch, lr: float | Tensor, sums: Sums) -> Tensor:
        """Take the step; return the sum of the losses, detached, without waiting for the device."""
        # Unreadable images may leave a share too small; the rest of it is trained in the next epoch.
        taken = len(batch.targets) if len(batch.targets) >= self.min_share else 0
        images = batch.images[:taken].to(self.world.device, non_blocking=True)  # (B, 3, H, W)
        targets = batch.targets[:taken].to(self.world.device, non_blocking=True)  # (B,)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group.get(LR_FACTOR, 1.0)
        parts = self._num_parts(len(images))
        total = torch.zeros((), device=self.world.device)
        shares = zip(images.tensor_split(parts), targets.tensor_split(parts), strict=True)
        for number, (some_images, some_targets) in enumerate(shares, start=1):
            with self.world.gradient_sync(self.model, is_last=number == parts):
                with self.precision.autocast(self.world.device):
                    logits = self.model(some_images)  # (B, C)
                loss_sum = self.loss_sum(logits.float(), some_targets)
                # DDP divides by the number of processes; we want the mean over all images of the step.
                loss = loss_sum * (self.world.size / batch.global_count)
                self.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            sums.add(loss_sum, logits, some_targets)
            total += loss_sum.detach()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return total

    def _num_parts(self, num_images: int) -> int:
        if self.micro_batch is None:
            return 1
        return max(1, min(math.ceil(num_images / self.micro_batch), num_images // self.min_share))


@dataclass(frozen=True)
class StepReport:
    """The state of an epoch over all processes, up to and including a step."""

    step: int
    """Step of the epoch, counted from 1."""
    lr: float
    metrics: Metrics
    images_per_second: float


class Watcher(Protocol):
    """Follows the progress of an epoch."""

    def after_step(self, loss_sum: Tensor) -> None:
        """Called after each step. May save the state, and may raise to end the epoch."""

    def report(self, report: StepReport) -> None:
        """Called with the state after every `report_every` steps."""


def train_one_epoch(
    step: Step,
    batches: Iterable[Batch],
    rate: Callable[[int], float],
    state: TrainState,
    report_every: int,
    watcher: Watcher,
) -> StepReport:
    """Train on the remaining batches of the open epoch; return the state after the last one.

    `rate` maps a step of this epoch, counted from 0, to its learning rate.
    """
    position = state.position
    lr = rate(max(0, position.steps_done - 1)) * position.lr_factor  # of the last step, if none is left
    started_at = time.perf_counter() - position.elapsed_s
    due: Callable[[], StepReport] | None = None
    for batch in batches:
        lr = rate(position.steps_done) * position.lr_factor
        loss_sum = step(batch, lr, state.sums)
        position.steps_done += 1
        position.images_done += batch.global_count
        position.rejected |= batch.rejected
        position.elapsed_s = time.perf_counter() - started_at
        watcher.after_step(loss_sum)
        if due:  # of the previous step: reading it does not wait for the GPU
            watcher.report(due())
            due = None
        if position.steps_done % report_every == 0:
            due = _report(state, lr, step.world, started_at)
            if step.world.device.type != "cuda":
                watcher.report(due())
                due = None
    if due:
        watcher.report(due())
    return _report(state, lr, step.world, started_at)()


@dataclass(frozen=True)
class ImageResults:
    """One process's results for each of its validation images."""

    places: np.ndarray
    """(N,), int64: indices of the images in their directory."""
    outcomes: Outcomes
    """The outcomes of these N images."""
    rejected: dict[int, str]
    """Images that could not be read: index → reason."""


@torch.inference_mode()
def evaluate(
    model: nn.Module, batches: Iterable[Batch], precision: Precision, device: torch.device
) -> tuple[Sums, ImageResults]:
    """Predict each image once, without communication; return the sums and the results for each image.

    `model` is not wrapped in DDP, which would wait for processes that have no batch.
    """
    model.eval()
    sums, rows = Sums(device), OutcomeRows(device)
    places = [np.empty(0, np.int64)]
    rejected: dict[int, str] = {}
    for batch in batches:
        images = batch.images.to(device, non_blocking=True)
        targets = batch.targets.to(device, non_blocking=True)
        with precision.autocast(device):
            logits = model(images)
        loss_sum = F.cross_entropy(logits.float(), targets, reduction="sum")
        sums.add(loss_sum, logits, targets)
        rows.add(logits, targets)
        places.append(batch.indices)
        rejected |= batch.rejected
    return sums, ImageResults(np.concatenate(places), rows.outcomes(), rejected)


def documented_metrics(trained: StepReport, validated: Metrics) -> dict[str, float]:
    """The metrics of an epoch under the component's documented names; fractions from 0 to 1."""
    return {
        "Train images per second": trained.images_per_second,
        "Train loss": trained.metrics.loss,
        "Train error": 1 - trained.metrics.top1,
        "Valid loss": validated.loss,
        "Top 1 accuracy": validated.top1,
        "Top 5 accuracy": validated.top5,
        "Learning rate": trained.lr,
    }


def _report(state: TrainState, lr: float, world: World, started_at: float) -> Callable[[], StepReport]:
    step, later = state.position.steps_done, state.sums.reduce_later(world)

    def wait() -> StepReport:
        metrics = later()
        state.position.elapsed_s = max(time.perf_counter() - started_at, 1e-9)  # includes the device's time
        return StepReport(step, lr, metrics, metrics.images / state.position.elapsed_s)

    return wait
