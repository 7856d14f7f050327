"""One epoch: training and validation as plain loops, whose caller acts between the steps."""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.inputs.bad_images import left_out
from train_pytorch_model.loop.batches import Reading
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.metrics import OutcomeRows, Sums
from train_pytorch_model.loop.state import ImageResults, State, StepReport
from train_pytorch_model.loop.trials import explaining_out_of_memory
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.cores import CoreTimes, choose_threads
from train_pytorch_model.words.wording import counted

MAX_LOGITS = 1 << 26  # of all validation images, 256 MiB: 67,000 images of 1,000 categories
THREADS_EVERY_S = 30.0  # a shorter disturbance costs less than other bits are worth


@dataclass(frozen=True)
class StepDone:
    """A step that has been taken."""

    loss_sum: Tensor
    """The sum of this process's losses, detached, on the device."""
    report: StepReport | None
    """If one is due; on a GPU, that of the step before, which is read without waiting for the device."""


def report_every(print_frequency: int, steps_per_epoch: int) -> int:
    """Steps between two reports: at least ten an epoch, and one with each line of a log."""
    most = min(print_frequency, max(1, steps_per_epoch // 10))
    return next(steps for steps in range(most, 0, -1) if print_frequency % steps == 0)


def train_epoch(engine: Engine, state: State, batches: Reading) -> Iterator[StepDone]:
    """Train on the batches that are left in the open epoch; yield after each step.

    At the end, `state.trained` is set. The state is complete whenever this yields: the caller may save it, or
    abandon the epoch. Raises `InvalidDatasetError` if too many images cannot be read,
    `ModuleOutOfMemoryError`.
    """
    plan, progress, world = engine.plan, state.progress, engine.world
    every = report_every(plan.config.print_frequency, plan.steps_per_epoch)
    engine.begin_training(progress.epoch, progress.steps_done)
    started_at = time.perf_counter() - progress.elapsed_s
    waited_before_s = progress.waited_s
    # Of the last step, if none is left.
    lr = plan.learning_rate(progress.epoch, max(0, progress.steps_done - 1), progress.lr_factor)
    due: Callable[[], StepReport] | None = None
    with explaining_out_of_memory(plan, plan.trained_at_once):
        for batch in batches:
            lr = plan.learning_rate(progress.epoch, progress.steps_done, progress.lr_factor)
            randomized = engine.randomize(batch, progress.epoch, progress.steps_done)
            output = engine.take_step(randomized, lr, state.sums)
            state.add_margins(batch.indices, output.margins)
            progress.steps_done += 1
            progress.images_done += batch.global_count
            progress.rejected |= batch.rejected
            progress.elapsed_s = time.perf_counter() - started_at
            progress.waited_s = waited_before_s + batches.waited_s
            report, due = due() if due else None, None
            if progress.steps_done % every == 0:
                due = _report_later(engine, state, lr, started_at)
                if world.device.type != "cuda":
                    report, due = due(), None
            yield StepDone(output.loss_sum, report)
    state.trained = _report_later(engine, state, lr, started_at)()
    progress.elapsed_s = max(time.perf_counter() - started_at, 1e-9)  # includes the device's time
    _leave_out(engine, state, "training", progress.rejected)
    progress.rejected = {}  # recorded; a run that resumes from here comes here once more


def validate(engine: Engine, state: State, batches: Reading) -> Iterator[None]:
    """Validate the current network; yield after each batch.

    At the end, `state.validated` is set, the same on every process, and `state.results` of this process's
    images. Raises `InvalidDatasetError` if too many images cannot be read, `ModuleOutOfMemoryError`.
    """
    started_at = time.perf_counter()
    engine.average_statistics()
    rows = yield from _evaluate(engine, batches)
    metrics = rows.sums.reduce(engine.world)
    state.results[state.progress.epoch] = rows.results(state, rejected={})  # which is recorded below
    _leave_out(engine, state, "validation", rows.rejected)
    state.validated = metrics
    state.progress.validation_s = time.perf_counter() - started_at


def validate_best(engine: Engine, state: State, batches: Reading) -> Iterator[None]:
    """Load the best epoch's weights and compute its results in `state.results` again; yield after each batch.

    For a run that was interrupted since that epoch: otherwise `state.results` still has them.
    """
    engine.network.load_state_dict(state.best.weights)
    for times in state.progress.times[state.best.epoch - 1 : state.best.epoch]:
        engine.world.use_threads(times.threads)  # for the bits of then
    rows = yield from _evaluate(engine, batches)
    state.results[state.best.epoch] = rows.results(state, rows.rejected)


class ThreadWatch:
    """The number of threads follows what other processes leave of the cores, between two steps."""

    def __init__(self, world: World) -> None:
        self._cores = world.cores
        self._since = None if world.threads.is_fixed else CoreTimes.now()

    def after_step(self) -> None:
        """Every half minute: take as many threads for the next steps as there were free cores in it."""
        if self._since is None or time.monotonic() - self._since.at_s < THREADS_EVERY_S:
            return
        since, self._since = self._since, CoreTimes.now()
        threads = choose_threads(self._cores, since, self._since)
        if threads.count != torch.get_num_threads():
            torch.set_num_threads(threads.count)
            logger.info(f"From here on {counted(threads.count, 'thread', 'threads')}: {threads.reason}.")


class _Rows:
    """What a validation has found so far, in this process."""

    def __init__(self, engine: Engine) -> None:
        self.engine, device = engine, engine.world.device
        self.sums, self.outcomes = Sums(device), OutcomeRows(device)
        inputs, num_classes = engine.plan.inputs, len(engine.plan.inputs.categories)
        self.logits = [torch.empty(0, num_classes, device=device)]
        self.keeps_logits = len(inputs.validation) * num_classes <= MAX_LOGITS
        self.indices = [np.empty(0, np.int64)]
        self.rejected: dict[int, str] = {}

    @torch.inference_mode()
    def add(self, batch: Batch) -> None:
        """Predict a batch. The model is not wrapped in DDP, which would wait for processes without one."""
        engine, device = self.engine, self.engine.world.device
        images = batch.images.to(device, non_blocking=True)  # (B, 3, H, W)
        targets = batch.targets.to(device, non_blocking=True)  # (B,)
        with engine.plan.precision.autocast(device):
            logits = engine.model(images)  # (B, C)
        loss_sum = F.cross_entropy(logits.float(), targets, reduction="sum")
        self.sums.add(loss_sum, logits, targets)
        self.outcomes.add(logits, targets)
        if self.keeps_logits:
            self.logits.append(logits.float())
        self.indices.append(batch.indices)
        self.rejected |= batch.rejected

    def results(self, state: State, rejected: dict[int, str]) -> ImageResults:
        images, indices = state.images["validation"], np.concatenate(self.indices)
        return ImageResults(
            images.places_in(state.given["validation"], indices),
            self.outcomes.outcomes(),
            torch.cat(self.logits).numpy(force=True),
            rejected,
        )


def _evaluate(engine: Engine, batches: Reading) -> Generator[None, None, _Rows]:
    rows = _Rows(engine)
    engine.model.eval()
    with explaining_out_of_memory(engine.plan, engine.plan.validated_at_once):
        for batch in batches:
            rows.add(batch)
            yield
    return rows


def _report_later(engine: Engine, state: State, lr: float, started_at: float) -> Callable[[], StepReport]:
    """Start reading the sums; called a step later, what is returned does not wait for the device."""
    step, read = state.progress.steps_done, state.sums.reduce_later(engine.world)

    def report() -> StepReport:
        metrics = read()
        elapsed_s = max(time.perf_counter() - started_at, 1e-9)  # includes the device's time
        return StepReport(step, lr, metrics, metrics.images / elapsed_s)

    return report


def _leave_out(engine: Engine, state: State, role: str, rejected: dict[int, str]) -> None:
    """Leave out what any process could not read, on all of them, and say so."""
    if records := state.leave_out(role, dict(engine.world.gather(list(rejected.items())))):
        logger.warning(left_out(records))
