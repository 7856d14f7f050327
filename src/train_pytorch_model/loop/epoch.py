"""One epoch: its batches, and training and validation as plain loops, whose caller acts between the
steps.
"""

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from train_pytorch_model.data import loader as loading
from train_pytorch_model.data.cache import Caches, open_caches
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.features import Compute, KeptFeatures
from train_pytorch_model.data.loader import Batch, Loader, Pass, plan_training, plan_validation
from train_pytorch_model.data.preparation import for_training
from train_pytorch_model.distributed.world import World
from train_pytorch_model.loop.engine import Engine, is_out_of_memory, nothing_fits
from train_pytorch_model.loop.metrics import OutcomeRows, Sums
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.loop.state import ImageResults, State, StepReport
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.system import CoreTimes, choose_threads
from train_pytorch_model.words.errors import ModuleOutOfMemoryError, counted, parameter

MAX_LOGITS = 1 << 26  # of all validation images, 256 MiB: 67,000 images of 1,000 categories
THREADS_EVERY_S = 30.0  # a shorter disturbance costs less than other bits are worth


@dataclass(frozen=True)
class Reading:
    """The batches of one pass, to be read once."""

    num_batches: int
    batches: Iterator[Batch]
    loader: Loader  # which counts the seconds spent waiting for them


class Batches:
    """Makes batches on the device. While the last ones of a pass are in use, the next pass begins."""

    def __init__(
        self,
        plan: Plan,
        loader: Loader,
        caches: Caches,
        max_steps: int | None = None,
        features: Compute | None = None,
    ) -> None:
        """`max_steps` ends passes early; `features`, if there is room, stand in batches for images."""
        self._plan, self._loader, self._caches, self._max_steps = plan, loader, caches, max_steps
        self.hashes = caches.hashes
        self._kept = None
        if features and caches.features is not None and plan.cache.views:
            dtype, at_once = plan.precision.dtype, plan.features_at_once
            self._kept = KeptFeatures(caches.features, plan.cache.views, dtype, features, at_once)

    def training(self, state: State) -> Reading:
        """Return the batches that are left in the open epoch, before its validation."""
        progress = state.progress
        current = self._training_pass(state, progress.epoch, progress.images_done)
        return self._read(current, lambda: self._validation_pass(state))

    def validation(self, state: State, is_last: bool = False) -> Reading:
        """Return this process's validation batches, before the next epoch unless `is_last`."""

        def following() -> Pass | None:
            epoch = state.progress.epoch + 1
            is_over = is_last or epoch > self._plan.config.epochs
            return None if is_over else self._training_pass(state, epoch)

        return self._read(self._validation_pass(state), following)

    def _read(self, current: Pass, then: Callable[[], Pass | None]) -> Reading:
        kept = self._kept
        part = kept.to_compute if kept else lambda given: given
        batches = self._loader.batches(
            part(current), lambda: part(after) if (after := then()) else None
        )
        batches = loading.on_device(batches, self._plan.world.device)
        return Reading(
            len(current.plan), kept.batches(current, batches) if kept else batches, self._loader
        )

    def _training_pass(self, state: State, epoch: int, images_done: int = 0) -> Pass:
        plan, images = self._plan, state.images["training"]
        config, world = plan.config, plan.world
        framing, seed, least = plan.framings[epoch - 1], config.random_seed, plan.min_local_batch
        planned = plan_training(
            len(images), config.batch_size, least, seed, epoch, world.rank, world.size, images_done
        )[: self._max_steps]
        prepared = for_training(plan.inputs.recipe, framing, plan.inputs.training_framing)
        read = loading.read_for_training(images, prepared, seed, epoch, self._caches.training)
        key = f"training {epoch} of {len(images)} images, {len(planned)} batches"
        return Pass(key, planned, read, images.class_indices, framing)

    def _validation_pass(self, state: State) -> Pass:
        plan, images, framing = self._plan, state.images["validation"], self._plan.inputs.framing
        planned = plan_validation(
            len(images), plan.validated_at_once, plan.world.rank, plan.world.size
        )
        planned = planned[: self._max_steps]
        read = loading.read_for_inference(images, framing, self._caches.validation)
        key = f"validation of {len(images)} images, {len(planned)} batches"
        return Pass(key, planned, read, images.class_indices, framing)


@contextmanager
def open_batches(
    plan: Plan,
    readers: Decoders | None,
    max_steps: int | None = None,
    features: Compute | None = None,
) -> Iterator[Batches]:
    """Batches, for a `with`; `readers` have no request yet; `features` of a frozen backbone, if
    kept.
    """
    with open_caches(plan.cache, plan.world) as caches:
        if readers is not None:
            readers.share(caches.shared)
        with Loader(plan.world.cores, readers) as loader:
            yield Batches(plan, loader, caches, max_steps, features)


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
    with explaining_out_of_memory(plan, plan.trained_at_once):
        for batch in left.batches:
            lr = plan.learning_rate(progress.epoch, progress.steps_done, progress.lr_factor)
            randomized = engine.randomize(batch, progress.epoch, progress.steps_done)
            output = engine.take_step(randomized, lr, state.sums)
            taken = batch.indices[: output.margins.shape[1]]
            places = state.images["training"].places_in(state.given["training"], taken)
            state.margins.add(places, progress.epoch, output.margins)
            progress.steps_done += 1
            progress.images_done += batch.global_count
            progress.rejected |= batch.rejected
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
    state.leave_out("training", progress.rejected)
    progress.rejected = {}  # recorded; a run that resumes from here comes here once more


def validate(engine: Engine, state: State, left: Reading) -> Iterator[None]:
    """Validate the current network; yield after each batch.

    At the end, `state.validated` is set, the same on every process, and `state.results` of this
    process's images. Raises `InvalidDatasetError` if too many images cannot be read,
    `ModuleOutOfMemoryError`.
    """
    started_at = time.perf_counter()
    engine.average_statistics()
    sums, results = yield from _predict(engine, state, left)
    state.results[state.progress.epoch] = replace(results, rejected={})
    state.leave_out("validation", results.rejected)
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


class ThreadWatch:
    """The number of threads follows what other processes leave of the cores, between two steps."""

    def __init__(self, world: World) -> None:
        self._cores = world.cores
        self._since = None if world.threads.is_fixed else CoreTimes.now()

    def after_step(self) -> None:
        """Every half minute: take as many threads for the next steps as there were free cores in
        it.
        """
        if self._since is None or time.monotonic() - self._since.at_s < THREADS_EVERY_S:
            return
        since, self._since = self._since, CoreTimes.now()
        threads = choose_threads(self._cores, since, self._since)
        if threads.count != torch.get_num_threads():
            torch.set_num_threads(threads.count)
            logger.info(
                f"From here on {counted(threads.count, 'thread', 'threads')}: {threads.reason}."
            )


def _predict(
    engine: Engine, state: State, left: Reading
) -> Generator[None, None, tuple[Sums, ImageResults]]:
    """Predict, yielding after each batch; not in DDP, which would wait for processes without a
    batch.
    """
    plan, device = engine.plan, engine.world.device
    sums, outcomes, rejected = Sums(device), OutcomeRows(device), dict[int, str]()
    num_classes, indices = len(plan.inputs.categories), [np.empty(0, np.int64)]
    kept_logits = [torch.empty(0, num_classes, device=device)]
    engine.model.eval()
    with explaining_out_of_memory(plan, plan.validated_at_once):
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
            rejected |= batch.rejected
            yield
    places = state.images["validation"].places_in(
        state.given["validation"], np.concatenate(indices)
    )
    logits_of_all = torch.cat(kept_logits).numpy(force=True)
    return sums, ImageResults(places, outcomes.outcomes(), logits_of_all, rejected)


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


@contextmanager
def explaining_out_of_memory(plan: Plan, images: int) -> Iterator[None]:
    """If memory runs out while `images` are computed at once, raise `ModuleOutOfMemoryError`: what
    to do.
    """
    trained, least = plan.trained_at_once, plan.min_local_batch
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        if trained <= least:
            raise nothing_fits(least) from error
        reason = " ".join(str(error).split())[:160]
        half = max(least, trained // 2)
        raise ModuleOutOfMemoryError(
            f"{images} images at once do not fit ({reason}). The same command resumes from the last"
            f" checkpoint and trains with {half} at once; or lower {parameter('batch_size')}, now"
            f" {plan.config.batch_size}, or the recipe's image_size and training_size.",
            images_at_once=half,
        ) from error
