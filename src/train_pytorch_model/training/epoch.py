"""One epoch: its batches, and training and validation as plain loops, whose caller acts between the
steps.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.training.batches import Reading
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.out_of_memory import explaining_out_of_memory
from train_pytorch_model.training.outcomes import OutcomeRows
from train_pytorch_model.training.state import ImageResults, State, StepReport

MAX_LOGITS = 1 << 26  # of all validation images, 256 MiB: 67,000 images of 1,000 categories


def report_every(print_frequency: int, steps_per_epoch: int) -> int:
    """Steps between two reports: at least ten an epoch, and one with each line of a log."""
    most = min(print_frequency, max(1, steps_per_epoch // 10))
    return next(steps for steps in range(most, 0, -1) if print_frequency % steps == 0)


def train_epoch(
    engine: Engine, state: State, left: Reading
) -> Iterator[tuple[Tensor, StepReport | None]]:
    """Train on the batches that are left in the open epoch; after each step yield a sum and a
    report.

    That is the sum of this process's losses, detached, on the device, and a report if one is due;
    on a GPU, that of the step before, which is read without waiting for the device. The state is
    complete then: the caller may save it, or abandon the epoch. At the end, `state.trained` is set.
    Raises `InvalidDatasetError` if too many images cannot be read, `ModuleOutOfMemoryError`.
    """
    plan, progress, world = engine.plan, state.progress, engine.world
    every = report_every(plan.config.print_frequency, plan.steps_per_epoch)
    engine.begin_training(progress.epoch, progress.steps_done)
    started_at = time.perf_counter() - progress.elapsed_s
    waited_before_s = progress.waited_s - left.loader.waited_s
    # Of the last step, if none is left.
    lr = plan.learning_rate(progress.epoch, max(0, progress.steps_done - 1), progress.lr_factor)
    due: Callable[[], StepReport] | None = None
    with explaining_out_of_memory(plan, engine.trained_at_once, engine.trained_at_once):
        for batch in left.batches:
            lr = plan.learning_rate(progress.epoch, progress.steps_done, progress.lr_factor)
            randomized = engine.randomize(batch, progress.epoch, progress.steps_done)
            output = engine.take_step(randomized, lr, state.sums)
            taken = batch.indices[: output.margins.shape[1]]
            places = state.images["training"].places_in(state.given["training"], taken)
            state.margins.add(places, progress.epoch, output.margins)
            progress.steps_done += 1
            progress.images_done += batch.global_count
            progress.unreadable |= batch.unreadable
            progress.elapsed_s = time.perf_counter() - started_at
            progress.waited_s = waited_before_s + left.loader.waited_s
            report, due = due() if due else None, None
            if progress.steps_done % every == 0:
                due = _report_later(engine, state, lr, started_at)
                if world.device.type != "cuda":
                    report, due = due(), None
            yield output.loss_sum, report
    state.trained = _report_later(engine, state, lr, started_at)()
    progress.elapsed_s = max(time.perf_counter() - started_at, 1e-9)  # includes the device's time
    state.leave_out("training", progress.unreadable)
    progress.unreadable = {}  # recorded; a run that resumes from here comes here once more


def validate(engine: Engine, state: State, left: Reading) -> Iterator[None]:
    """Validate the current network; yield after each batch.

    At the end, `state.validated` is set, the same on every process, and `state.results` of this
    process's images. Raises `InvalidDatasetError` if too many images cannot be read,
    `ModuleOutOfMemoryError`.
    """
    started_at = time.perf_counter()
    engine.average_statistics()
    sums, results = yield from _predict(engine, state, left)
    state.results[state.progress.epoch] = replace(results, unreadable={})
    state.leave_out("validation", results.unreadable)
    state.validated = sums.reduce_later(engine.world)()
    state.progress.validation_s = time.perf_counter() - started_at


def validate_best(engine: Engine, state: State, left: Reading) -> Iterator[None]:
    """Validate the best epoch's weights again, after an interruption since then; yield after each
    batch.
    """
    engine.network.load_state_dict(state.best.weights)
    for times in state.progress.times[state.best.epoch - 1 : state.best.epoch]:
        engine.world.use_threads(times.threads)  # for the bits of then
    _, state.results[state.best.epoch] = yield from _predict(engine, state, left)


def _predict(
    engine: Engine, state: State, left: Reading
) -> Generator[None, None, tuple[Sums, ImageResults]]:
    """Predict, yielding after each batch; not in DDP, which would wait for processes without a
    batch.
    """
    plan, device = engine.plan, engine.world.device
    sums, outcomes, unreadable = Sums(device), OutcomeRows(device), dict[int, str]()
    num_classes, indices = len(plan.inputs.categories), [np.empty(0, np.int64)]
    kept_logits = [torch.empty(0, num_classes, device=device)]
    engine.model.eval()
    with explaining_out_of_memory(plan, engine.trained_at_once, engine.validated_at_once):
        for batch in left.batches:
            with torch.inference_mode():
                images = batch.images.to(device, non_blocking=True)  # (B, 3, H, W)
                targets = batch.targets.to(device, non_blocking=True)  # (B,)
                with plan.precision.autocast(device):
                    logits = engine.model(images)  # (B, C)
                loss_sum = F.cross_entropy(logits.float(), targets, reduction="sum")
                sums.add(loss_sum, logits, targets)
                outcomes.add(logits, targets)
                if len(plan.inputs.validation) * num_classes <= MAX_LOGITS:
                    kept_logits.append(logits.float())
            indices.append(batch.indices)
            unreadable |= batch.unreadable
            yield
    places = state.images["validation"].places_in(
        state.given["validation"], np.concatenate(indices)
    )
    logits_of_all = torch.cat(kept_logits).numpy(force=True)
    return sums, ImageResults(places, outcomes.outcomes(), logits_of_all, unreadable)


def _report_later(
    engine: Engine, state: State, lr: float, started_at: float
) -> Callable[[], StepReport]:
    """Start reading the sums; called a step later, what is returned does not wait for the device."""
    step, read = state.progress.steps_done, state.sums.reduce_later(engine.world)

    def report() -> StepReport:
        metrics = read()
        elapsed_s = max(time.perf_counter() - started_at, 1e-9)  # includes the device's time
        return StepReport(step, lr, metrics, metrics.images / elapsed_s)

    return report
