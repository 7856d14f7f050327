"""Training: from an untrained model and two image directories to a trained model; and its progress."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.loader import start_readers
from train_pytorch_model.data.pixel_decisions import decide_flips, decide_white_level
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.formats.run_folder import REPORT, RunFolder, is_azure_job
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.loop.checkpoint import Checkpoint
from train_pytorch_model.loop.engine import Engine, start_engine
from train_pytorch_model.loop.epoch import ThreadWatch, open_batches, train_epoch, validate
from train_pytorch_model.loop.plan import Plan, describe, make_plan, warnings_of
from train_pytorch_model.loop.saving import EVERY_S, UPLOADED_EVERY_S, NotFiniteError, Saver
from train_pytorch_model.loop.state import State, StepReport
from train_pytorch_model.machine.console import Bar, logger, paragraph, progress_bar, summary
from train_pytorch_model.machine.stop_requests import StopRequests, stop_requests
from train_pytorch_model.measures.evaluation import TOP_K
from train_pytorch_model.measures.evaluation_directory import verdict
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.stories.report import (
    Examined,
    describe_run,
    examine,
    report_on,
    stopped_early,
)
from train_pytorch_model.stories.run import Run, open_run, publish
from train_pytorch_model.tracking.tracker import MlflowTracker
from train_pytorch_model.words import errors
from train_pytorch_model.words.errors import TrainingError, counted, parameter
from train_pytorch_model.words.settings import TrainConfig

DRY_RUN_STEPS = 3
STEPS_TO_JUDGE = 10  # until the speed is known; the first, slower one does not count
LONG_RUN_S = 2 * 3600.0  # worth a warning on a CPU


def train(
    config: TrainConfig,
    inputs: OpenedInputs,
    output: Path,
    world: World,
    fresh: bool = False,
    stops: Callable[[], AbstractContextManager[StopRequests]] = stop_requests,
) -> None:
    """Train, validate after every epoch, stop early when patience runs out, and write the best
    epoch's model.

    Resumes an interrupted run of the same inputs and parameters, unless `fresh`. It is asked to
    stop through `stops`, by default with signals. Raises `TrainingError` when training cannot
    continue, `StoppedError` when it is asked to stop, and what making plan and engine raises.
    """
    started_at = time.perf_counter()
    with start_readers(world) as readers:  # which load PyTorch while the engine is built
        plan = make_plan(config, decide_flips(decide_white_level(inputs, world), world), world)
        fitted = RunFolder.beside(output).read_micro_batch(plan.fingerprint, fresh)
        # The least, of an earlier start of this run: processes may not share its folder.
        engine = start_engine(plan, min(filter(None, world.gather([fitted])), default=None))
        show_plan(engine.plan)
        with open_run(engine.plan, output, fresh) as run, stops() as stop:
            state, examined = train_epochs(engine, run, readers, stop)
    try:
        # Until the model is written, for which the other processes are no longer needed.
        world.barrier()
    except RuntimeError as error:
        if not (world.is_main and is_lost_connection(error)):
            raise
    best = state.best
    paragraph(
        f"Trained in {duration(time.perf_counter() - started_at)}. Best epoch: {best.epoch},"
        " validation"
        f" loss {best.metrics.loss:.4f}, accuracy {best.metrics.top1:.1%}."
    )
    if examined:
        paragraph(verdict(examined.evaluation, plan.inputs.categories))
    paragraph(state.budget().verdict)


def train_epochs(
    engine: Engine, run: Run, readers: Decoders | None, stop: StopRequests
) -> tuple[State, Examined | None]:
    """Train the remaining epochs, and publish the best one's model with the report."""
    plan, folder = engine.plan, run.folder.checkpoints
    every_s = UPLOADED_EVERY_S if is_azure_job() else EVERY_S
    tracker = None
    if plan.world.is_main:
        tracker = MlflowTracker(describe_run(plan, run.output), run.folder.mlflow_run)
    with (
        open_batches(plan, readers, features=engine.features) as batches,
        tracker or nullcontext(),
        Saver(
            folder, every_s, engine, state := State(plan, batches.hashes), stop, run.save
        ) as saver,
    ):
        if saver.resume():
            paragraph(progress_of(state), "Resumed")
            for record in state.progress.history:
                if tracker:
                    tracker.log(record)
        threads = ThreadWatch(plan.world)
        while not state.is_over:
            try:
                left = batches.training(state)
                with epoch_view(plan, state, left.num_batches) as view:
                    for loss_sum, report in train_epoch(engine, state, left):
                        saver.after_step(loss_sum)
                        view.show(report)
                        threads.after_step()
                saver.after_training()
                left = batches.validation(state)
                with progress_bar(left.num_batches, "Validation") as bar:
                    for _ in validate(engine, state, left):
                        saver.after_validation_batch()
                        bar.advance()
            except NotFiniteError as error:
                saver.roll_back(error)
                continue
            except errors.ModuleOutOfMemoryError as error:
                run.folder.write_micro_batch(error.images_at_once)
                raise
            state.close_epoch(engine.network)
            if tracker:
                tracker.log(state.progress.history[-1])
            run.keep_history(state)
            saver.after_epoch()
            show_epoch(plan, state)
        if why := stopped_early(plan, state):
            paragraph(why)
        examined = examine(engine, state, batches, saver)
        files = report_on(engine, state, run.output, examined) if examined else {}
        if examined and tracker:
            tracker.conclude(examined.metrics, files)
    publish_best(run, state, examined, files.get(REPORT, ""), saver.unsaved)
    return state, examined


def publish_best(
    run: Run, state: State, examined: Examined | None, report: str, unsaved: Checkpoint | None
) -> None:
    """Write the model of the best epoch, on the main process. Raises `TrainingError`."""
    plan = run.plan
    if state.best.epoch == 0:
        raise TrainingError(
            "The validation loss was not finite in any epoch, so there is no model to keep."
            f" Lower {parameter('learning_rate')}, now {plan.config.learning_rate}."
        )
    if not plan.world.is_main:
        return
    try:
        publish(run, state, examined, report)
    except errors.OutputDirectoryError as error:  # most likely a full disk
        raise TrainingError(
            f"The model is trained, but: {error} {run.how_to_recover(unsaved)}"
        ) from error


def dry_run(config: TrainConfig, inputs: OpenedInputs, world: World) -> None:
    """`--dry-run`: train and validate for a few steps, and write nothing."""
    engine = start_engine(
        make_plan(config, decide_flips(decide_white_level(inputs, world), world), world)
    )
    plan, state = engine.plan, State(engine.plan)
    show_plan(plan)
    with (
        start_readers(world) as readers,
        open_batches(plan, readers, DRY_RUN_STEPS, engine.features) as batches,
    ):
        left = batches.training(state)
        with epoch_view(plan, state, left.num_batches) as view:
            for _, report in train_epoch(engine, state, left):
                view.show(report)
        for _ in validate(engine, state, batches.validation(state, is_last=True)):
            pass
    steps = counted(state.progress.steps_done, "step", "steps")
    state.close_epoch(engine.network)
    record = state.progress.history[-1]
    for kind, loss in (("training", record["Train loss"]), ("validation", record["Valid loss"])):
        if not math.isfinite(loss):
            raise TrainingError(
                f"The {kind} loss is {loss} within {steps}. Lower {parameter('learning_rate')}, now"
                f" {config.learning_rate}, or warm up with {parameter('warmup_epochs')}."
            )
    # No accuracy: the few validation images all belong to the first category.
    logger.info(
        f"Dry run: {steps}, training loss {record['Train loss']:.4f}; nothing was written. Leave"
        " out"
        f" {parameter('dry_run')} to train."
    )


def show_plan(plan: Plan) -> None:
    """Log the plan and all warnings before training starts."""
    for title, text in describe(plan).items():
        paragraph(text, title)
    for warning in warnings_of(plan):
        logger.warning(warning)


def progress_of(state: State) -> str:
    """How far training has progressed, for the log."""
    progress, images = state.progress, state.images["training"]
    if state.is_over:
        return "after the last epoch; only the trained model directory is missing"
    if progress.images_done == 0:
        return f"at the beginning of epoch {progress.epoch}"
    return f"in epoch {progress.epoch}, after {progress.images_done:,} of {len(images):,} images"


def show_epoch(plan: Plan, state: State) -> None:
    """Log the results of the epoch that was completed last in one line."""
    record = state.progress.history[-1]
    has_top5 = len(plan.inputs.categories) > TOP_K  # otherwise it is always 100 %
    summary(
        f"Epoch {record['epoch']}/{plan.config.epochs}",
        f"training loss {record['Train loss']:.4f}",
        f"validation loss {record['Valid loss']:.4f}",
        f"top-1 {record['Top 1 accuracy']:.1%}",
        *(["best"] if state.best.epoch == record["epoch"] else []),
        *([f"top-5 {record['Top 5 accuracy']:.1%}"] if has_top5 else []),
        f"{record['Train images per second']:.1f} images/s",
    )


def rest_s(plan: Plan, epoch: int, step_s: float, waited_s: float) -> float:
    """Seconds for the epochs after `epoch`, counted from 1, whose steps took `step_s`, `waited_s`
    idle.

    The computing time of a step is proportional to the pixels of an image. Waiting does not grow
    with them: a large file takes as long to read at any training size.
    """
    pixels = [framing.num_pixels for framing in plan.framings]
    computed_s = sum(pixels[epoch:]) / pixels[epoch - 1] * (step_s - waited_s)
    return plan.steps_per_epoch * (computed_s + (len(pixels) - epoch) * waited_s)


class EpochView:
    """Displays the progress of an epoch of which `num_steps` steps are left."""

    def __init__(self, bar: Bar, plan: Plan, state: State, num_steps: int) -> None:
        self._bar, self._plan, self._state = bar, plan, state
        self._num_steps, self._steps = num_steps, 0
        self._start = self._first_step = time.perf_counter(), state.progress.waited_s

    def show(self, report: StepReport | None) -> None:
        """Count a step, and show a report that is due."""
        self._bar.advance()
        self._steps += 1
        progress = self._state.progress
        if self._steps == 1:
            self._first_step = time.perf_counter(), progress.waited_s
        elif self._steps == STEPS_TO_JUDGE:
            self._warn_of_a_long_run()
        if report:
            self._bar.show(
                report.step,
                f"loss {report.metrics.loss:.4f}",
                f"top-1 {report.metrics.top1:6.1%}",
                self._eta(),
                f"{report.images_per_second:.1f} images/s",
                f"lr {report.lr:.2e}",
                f"data wait {progress.waited_s / max(progress.elapsed_s, 1e-9):.0%}",
            )

    def _pace_since(self, start: tuple[float, float], steps: int) -> tuple[float, float]:
        """Seconds that a step has taken since then, and the part of them spent waiting for images."""
        started_at, waited_s = start
        waited_s = self._state.progress.waited_s - waited_s
        return (time.perf_counter() - started_at) / steps, waited_s / steps

    def _eta(self) -> str:
        """The time left for the epoch, and for the run if all epochs are trained."""
        plan, progress = self._plan, self._state.progress
        step_s, waited_s = self._pace_since(self._start, self._steps)
        epoch_s = step_s * (self._num_steps - self._steps)
        following = plan.config.epochs - progress.epoch
        if following == 0:
            return f"ETA {duration(epoch_s)}"
        validation_s = (
            progress.times[-1].validation_s if progress.times else 0.0
        )  # unknown in epoch 1
        run_s = (
            epoch_s
            + rest_s(plan, progress.epoch, step_s, waited_s)
            + (following + 1) * validation_s
        )
        return f"ETA {duration(epoch_s)}, run {duration(run_s)}"

    def _warn_of_a_long_run(self) -> None:
        plan, progress = self._plan, self._state.progress
        is_first = progress.epoch == 1 and progress.steps_done == self._steps
        if plan.world.device.type != "cpu" or not is_first:
            return
        step_s, waited_s = self._pace_since(self._first_step, STEPS_TO_JUDGE - 1)
        run_s = step_s * plan.steps_per_epoch + rest_s(plan, 1, step_s, waited_s)
        if run_s >= LONG_RUN_S:
            epochs, images = plan.config.epochs, len(plan.inputs.training)
            logger.warning(
                f"At the speed of the first steps, {images * epochs:,} images ({epochs}"
                f" epochs) take about {duration(run_s)} on this CPU. A GPU takes a small part of"
                " that."
                f" Fewer {parameter('epochs')} or, in init-model, a smaller"
                f" {parameter('image_size')} or"
                f" {parameter('freeze_backbone')} help, too."
            )


@contextmanager
def epoch_view(plan: Plan, state: State, num_steps: int) -> Iterator[EpochView]:
    """The display of the open epoch, for a `with`; `num_steps` steps of it are left."""
    done, epochs = state.progress.steps_done, plan.config.epochs
    title = f"Epoch {state.progress.epoch}/{epochs}"
    with progress_bar(done + num_steps, title, done, plan.config.print_frequency) as bar:
        yield EpochView(bar, plan, state, num_steps)
