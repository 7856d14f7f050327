"""Training and validation of one epoch, as plain loops, whose caller acts between the steps."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from train_pytorch_model.training.batches import BatchLoader
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.out_of_memory import explaining_out_of_memory
from train_pytorch_model.training.state import ImageResults, State, StepReport

MAX_LOGITS = 1 << 26  # of all validation images, 256 MiB: 67,000 images of 1,000 categories
MIN_ELAPSED_S = 1e-9  # of the first step, by a coarse clock: rates stay finite


def report_every(print_frequency: int, steps_per_epoch: int) -> int:
    """Return the steps between two reports: ten or more an epoch, and one with each log line."""
    most = min(print_frequency, max(1, steps_per_epoch // 10))
    return next(steps for steps in range(most, 0, -1) if print_frequency % steps == 0)


def train_epoch(
    engine: Engine, state: State, train_loader: BatchLoader
) -> Iterator[tuple[Tensor, StepReport | None]]:
    """Train the rest of the open epoch; yield a loss and a report after each step.

    The loss is the sum of this process's losses, detached, on the device. A report is None unless
    one is due; on a GPU, it is that of the step before, which is read without waiting for the
    device. The state is complete then: the caller may save it, or abandon the epoch. At the end,
    `state.trained` is set. Raises `InvalidDatasetError` if too many images cannot be read,
    `ModuleOutOfMemoryError`.
    """
    plan = engine.plan
    progress = state.progress
    engine.begin_training(progress.epoch, progress.steps_done)
    started_at = time.perf_counter() - progress.elapsed_s
    waited_before_s = progress.waited_s - train_loader.waited_s
    reports = _Reports(engine, state, started_at)

    with explaining_out_of_memory(plan, engine.trained_at_once, engine.trained_at_once):
        for batch in train_loader:
            lr = plan.learning_rate(progress.epoch, progress.steps_done, progress.lr_factor)
            randomized = engine.randomize(batch, progress.epoch, progress.steps_done)
            output = engine.take_step(randomized, lr, state.sums)
            state.add_margins(batch.indices, output.margins)
            progress.steps_done += 1
            progress.images_done += batch.global_count
            progress.newly_unreadable |= batch.unreadable
            progress.elapsed_s = time.perf_counter() - started_at
            progress.waited_s = waited_before_s + train_loader.waited_s
            yield output.loss_sum, reports.after_step(lr)

    engine.end_training()
    last_step = max(0, progress.steps_done - 1)
    last_lr = plan.learning_rate(progress.epoch, last_step, progress.lr_factor)
    state.trained = reports.read_later(last_lr)()
    # Once more: this includes the device's time.
    progress.elapsed_s = max(time.perf_counter() - started_at, MIN_ELAPSED_S)
    state.leave_out("training", progress.newly_unreadable)
    progress.newly_unreadable = {}  # recorded; a run that resumes from here comes here once more


class _Reports:
    """Reports on the training of an epoch, every few steps; on a GPU, they come a step later."""

    def __init__(self, engine: Engine, state: State, started_at: float) -> None:
        plan = engine.plan
        self._world = engine.world
        self._state = state
        self._started_at = started_at
        self._every = report_every(plan.config.print_frequency, plan.steps_per_epoch)
        self._due: Callable[[], StepReport] | None = None

    def after_step(self, lr: float) -> StepReport | None:
        """Return the report that is due, if any."""
        report = self._read_due()
        if self._state.progress.steps_done % self._every == 0:
            self._due = self.read_later(lr)
            if self._world.device.type != "cuda":
                report = self._read_due()
        return report

    def read_later(self, lr: float) -> Callable[[], StepReport]:
        """Start reading the sums, and return a function of the report on them.

        Collective. Called a step later, the function does not wait for the device.
        """
        step = self._state.progress.steps_done
        read_metrics = self._state.sums.reduce_later(self._world)

        def report() -> StepReport:
            metrics = read_metrics()
            # Only now: this includes the device's time.
            elapsed_s = max(time.perf_counter() - self._started_at, MIN_ELAPSED_S)
            return StepReport(step, lr, metrics, metrics.images / elapsed_s)

        return report

    def _read_due(self) -> StepReport | None:
        if self._due is None:
            return None
        report = self._due()
        self._due = None
        return report


def validate(engine: Engine, state: State, validation_loader: BatchLoader) -> Iterator[None]:
    """Validate the current network; yield after each batch.

    At the end, `state.validated` is set, the same on every process, and `state.results` of this
    process's images. Raises `InvalidDatasetError` if too many images cannot be read,
    `ModuleOutOfMemoryError`.
    """
    started_at = time.perf_counter()
    engine.average_statistics()
    sums, results = yield from _predict(engine, state, validation_loader)
    state.results[state.progress.epoch] = replace(results, unreadable={})
    state.leave_out("validation", results.unreadable)
    state.validated = sums.reduce_later(engine.world)()
    state.validated_further = engine.plan.task.further_metrics(results.outcomes, engine.world)
    state.progress.validation_s = time.perf_counter() - started_at


def validate_best(engine: Engine, state: State, validation_loader: BatchLoader) -> Iterator[None]:
    """Validate the weights of the best epoch once more; yield after each batch.

    A run that was interrupted since then no longer has its results.
    """
    best = state.best
    engine.network.load_state_dict(best.weights)
    for times in state.progress.times[best.epoch - 1 : best.epoch]:
        engine.world.use_threads(times.threads)  # for the bits of then
    _, state.results[best.epoch] = yield from _predict(engine, state, validation_loader)


def _predict(
    engine: Engine, state: State, validation_loader: BatchLoader
) -> Generator[None, None, tuple[Sums, ImageResults]]:
    """Predict, yielding after each batch, and return the sums and the results of the images.

    Not in DDP, which would wait for processes without a batch.
    """
    plan = engine.plan
    device = engine.world.device
    task = plan.task
    num_categories = task.num_categories
    has_logits = len(plan.inputs.validation) * num_categories <= MAX_LOGITS
    sums = Sums(device)
    outcomes = task.collect_outcomes(device)
    # Of each batch; a process may have none.
    indices_by_batch = [np.empty(0, np.int64)]
    logits_by_batch = [torch.empty(0, num_categories, device=device)]
    unreadable: dict[int, str] = {}

    engine.model.eval()
    with explaining_out_of_memory(plan, engine.trained_at_once, engine.validated_at_once):
        for batch in validation_loader:
            with torch.inference_mode():
                images = batch.images.to(device, non_blocking=True)  # (B, 3, H, W)
                targets = batch.targets.to(device, non_blocking=True)  # (B,)
                with plan.precision.autocast(device):
                    logits = engine.model(images)  # (B, C)
                loss_sum = task.validation_loss_sum(logits.float(), targets)
                sums.add(loss_sum, task.ranks(logits, targets))
                outcomes.add(logits, targets)
                if has_logits:
                    logits_by_batch.append(logits.float())
            indices_by_batch.append(batch.indices)
            unreadable |= batch.unreadable
            yield

    indices = np.concatenate(indices_by_batch)
    indices = state.images["validation"].indices_in(state.datasets["validation"], indices)
    logits_of_all = torch.cat(logits_by_batch).numpy(force=True)
    return sums, ImageResults(indices, outcomes.outcomes(), logits_of_all, unreadable)
