"""Training: from an untrained model and two image directories to a trained model."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path

from train_pytorch_model import errors
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import counted, parameter
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.loader import start_readers
from train_pytorch_model.data.pixel_decisions import decide_flips, decide_white_level
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.errors import TrainingError
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.time_budget import duration
from train_pytorch_model.evaluation.verdict import verdict
from train_pytorch_model.formats.run_folder import RunFolder
from train_pytorch_model.formats.trained_directory import EVALUATION, REPORT
from train_pytorch_model.inputs.opening import OpenedInputs
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.console import logger, paragraph, progress_bar
from train_pytorch_model.machine.stop_requests import StoppedError, StopRequests, stop_requests
from train_pytorch_model.machine.time_limit import NO_LIMIT, TimeLimit
from train_pytorch_model.publishing.examine import Examination, examine
from train_pytorch_model.publishing.publish import Finish, Test, publish
from train_pytorch_model.publishing.report import render_report_files, stopped_early
from train_pytorch_model.publishing.run import Run, open_run
from train_pytorch_model.publishing.run_description import describe_run
from train_pytorch_model.tracking.tracker import MlflowTracker
from train_pytorch_model.training.agreed_clock import AgreedClock, OutOfTimeError
from train_pytorch_model.training.batches import Batches, open_batches
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.deterministic import deterministic_if
from train_pytorch_model.training.engine import Engine, start_engine
from train_pytorch_model.training.epoch import train_epoch, validate
from train_pytorch_model.training.plan import Plan, make_plan
from train_pytorch_model.training.progress import epoch_view, progress_of, show_epoch, show_plan
from train_pytorch_model.training.saver import EVERY_S, UPLOADED_EVERY_S, NotFiniteError, Saver
from train_pytorch_model.training.solved_start import solved_weights
from train_pytorch_model.training.state import BestEpoch, State
from train_pytorch_model.training.thread_watch import ThreadWatch

DRY_RUN_STEPS = 3


def train(
    config: TrainConfig,
    inputs: OpenedInputs,
    output: Path,
    world: World,
    fresh: bool = False,
    stops: Callable[[], AbstractContextManager[StopRequests]] = stop_requests,
    test: Test | None = None,
    overwrite: bool = False,
    limit: TimeLimit = NO_LIMIT,
) -> AnyEvaluation | None:
    """Train, validate after every epoch, stop early when patience runs out; write the best model.

    Before it is published, the model is tested by `test`, on the main process, which returns the
    evaluation. Resumes an interrupted run of the same inputs and parameters, unless `fresh`. With
    `overwrite`, the model takes the place of one that is whole, when it is complete itself. It is
    asked to stop through `stops`, by default with signals. When the time `limit` is up, training
    ends, and the best model so far is published. Raises `TrainingError` when training
    cannot continue, `StoppedError` when it is asked to stop, and what making plan and engine
    raises.
    """
    started_at = time.perf_counter()
    is_fixed = deterministic_if(inputs.recipe.deterministic)
    # The readers load PyTorch while the engine is built.
    with is_fixed, start_readers(world) as readers:
        plan = decide_and_plan(config, inputs, world)
        engine = start_engine(plan, read_micro_batch(plan, output, fresh))
        show_plan(engine)
        with open_run(plan, output, fresh, overwrite) as run, stops() as stop:
            state, examination, tested = train_and_publish(engine, run, readers, stop, test, limit)
    if test is None:  # a test may take longer than the others can wait
        wait_for_the_model(world)

    best = state.best
    paragraph(
        f"Trained in {duration(time.perf_counter() - started_at)}. {best_in_words(best)},"
        f" validation loss {best.metrics.loss:.4f}, {plan.task.top1_name} {best.metrics.top1:.1%}."
    )
    if examination and not tested:  # or else the test has the last word
        paragraph(verdict(examination.evaluation, plan.inputs.categories))
    paragraph(state.budget().verdict)
    return tested


def best_in_words(best: BestEpoch) -> str:
    """Return which weights are the best."""
    if best.is_start:
        return "The solved classifier is the best"
    return f"Best epoch: {best.epoch}"


def train_and_publish(
    engine: Engine,
    run: Run,
    readers: Decoders | None,
    stop: StopRequests,
    test: Test | None = None,
    limit: TimeLimit = NO_LIMIT,
) -> tuple[State, Examination | None, AnyEvaluation | None]:
    """Train the remaining epochs, and publish the best one's model with its test and the report."""
    every_s = UPLOADED_EVERY_S if is_azure_job() else EVERY_S
    tracker = None
    if engine.world.is_main:
        tracker = MlflowTracker(describe_run(engine, run.output), run.folder.mlflow_run)
    with tracker or nullcontext():
        with open_batches(engine, readers) as batches:
            state = State(engine.plan, batches.hashes)
            with Saver(run.folder.checkpoints, every_s, engine, state, stop, run.save) as saver:
                if saver.resume():
                    paragraph(progress_of(state), "Resumed")
                    for record in state.progress.history:
                        if tracker:
                            tracker.log(record)
                if engine.plan.inputs.race and not state.best.is_found:
                    validate_solved(engine, state, batches, saver)
                train_epochs(engine, state, batches, saver, run, tracker, limit)
                examination = examine(engine, state, batches, saver)

        def finish(root: Path) -> tuple[AnyEvaluation | None, str]:
            tested = test(root, partial(check_stop, run, saver, stop)) if test else None
            files: dict[str, str] = {}
            if examination:
                files = render_report_files(engine, state, run.output, examination, tested)
                if tested:
                    page = f"{EVALUATION}/{PAGE}"  # which the report links
                    files[page] = (root / page).read_text(encoding="utf-8")
                if tracker:
                    tracker.conclude(examination.metrics, files)
            return tested, files.get(REPORT, "")

        tested = publish_best(run, state, examination, finish, saver.unsaved)
    return state, examination, tested


def check_stop(run: Run, saver: Saver, stop: StopRequests) -> None:
    """Raise `StoppedError` if this process is asked to stop; all epochs are saved by now."""
    if stop.signal:
        raise StoppedError(stop.signal, run.folder.checkpoints, is_saved=saver.unsaved is None)


def validate_solved(engine: Engine, state: State, batches: Batches, saver: Saver) -> None:
    """Validate the solved classifier of a race, which may remain the best."""
    validation_loader = batches.validation(state, is_last=True)
    with (
        solved_weights(engine),
        progress_bar(len(validation_loader), "Validation") as bar,
    ):
        for _ in validate(engine, state, validation_loader):
            saver.after_validation_batch()
            bar.advance()
        state.close_start(engine.network)
    saver.after_epoch()
    metrics = state.best.metrics
    paragraph(
        f"The solved classifier: validation loss {metrics.loss:.4f}, top-1 {metrics.top1:.1%}"
    )


def train_epochs(
    engine: Engine,
    state: State,
    batches: Batches,
    saver: Saver,
    run: Run,
    tracker: MlflowTracker | None,
    limit: TimeLimit = NO_LIMIT,
) -> None:
    """Train and validate epoch after epoch.

    It ends when none is left, the patience is exhausted, or the time is up.
    """
    plan = engine.plan
    threads = ThreadWatch(plan.world)
    clock = AgreedClock(limit, plan.world)
    while not state.is_over:
        if clock.is_up_between_epochs():
            end_early(state, saver)
            break
        try:
            train_loader = batches.training(state)
            with epoch_view(plan, state, len(train_loader)) as view:
                for loss_sum, report in train_epoch(engine, state, train_loader):
                    saver.after_step(loss_sum)
                    clock.check_within_epoch()
                    view.show(report)
                    threads.after_step()
            saver.after_training()

            validation_loader = batches.validation(state)
            with progress_bar(len(validation_loader), "Validation") as bar:
                for _ in validate(engine, state, validation_loader):
                    saver.after_validation_batch()
                    bar.advance()
        except NotFiniteError as error:
            saver.roll_back(error)
            continue
        except OutOfTimeError:
            end_early(state, saver)
            break
        except errors.ModuleOutOfMemoryError as error:
            run.folder.write_micro_batch(error.images_at_once)
            raise

        state.close_epoch(engine.network)
        if tracker:
            tracker.log(state.progress.history[-1])
        run.record_history(state)
        saver.after_epoch()
        show_epoch(plan, state)
    show_early_stop(plan, state)


def end_early(state: State, saver: Saver) -> None:
    """End training where it is, as its time is up, and write that down."""
    state.end_early()
    with suppress(NotFiniteError):  # what an open epoch has computed is not used
        saver.after_epoch()


def publish_best(
    run: Run,
    state: State,
    examination: Examination | None,
    finish: Finish,
    unsaved: Checkpoint | None,
) -> AnyEvaluation | None:
    """Write the model of the best epoch, on the main process, and return its test, if any.

    Raises `TrainingError`.
    """
    plan = run.plan
    if not state.best.is_found:
        raise TrainingError(
            "The validation loss was not finite in any epoch, so there is no model to keep."
            f" Lower {parameter('learning_rate')}, now {plan.config.learning_rate}."
        )
    if not plan.world.is_main:
        return None
    try:
        return publish(run, state, examination, finish)
    except errors.OutputDirectoryError as error:  # most likely a full disk
        raise TrainingError(
            f"The model is trained, but: {error} {run.how_to_recover(unsaved)}"
        ) from error


def dry_run(config: TrainConfig, inputs: OpenedInputs, world: World) -> None:
    """`--dry-run`: train and validate for a few steps, and write nothing."""
    with deterministic_if(inputs.recipe.deterministic):
        _take_steps(config, inputs, world)


def _take_steps(config: TrainConfig, inputs: OpenedInputs, world: World) -> None:
    plan = decide_and_plan(config, inputs, world)
    engine = start_engine(plan)
    state = State(plan)
    show_plan(engine)
    with (
        start_readers(world) as readers,
        open_batches(engine, readers, DRY_RUN_STEPS) as batches,
    ):
        train_loader = batches.training(state)
        with epoch_view(plan, state, len(train_loader)) as view:
            for _, report in train_epoch(engine, state, train_loader):
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
        f" out {parameter('dry_run')} to train."
    )


def decide_and_plan(config: TrainConfig, inputs: OpenedInputs, world: World) -> Plan:
    """Decide what only the pixels can tell, and plan the run. Collective."""
    if inputs.recipe.deterministic:
        world = world.with_fixed_threads()
    with_white_level = decide_white_level(inputs, world)
    return make_plan(config, decide_flips(with_white_level, world), world)


def read_micro_batch(plan: Plan, output: Path, fresh: bool) -> int | None:
    """Return the images that have fit into memory in an earlier start of this run, if it ran out.

    Collective: it is the least of all processes, which may not share the run's folder.
    """
    micro_batch = RunFolder.beside(output).read_micro_batch(plan.fingerprint, fresh)
    of_all = plan.world.gather([micro_batch])
    return min(filter(None, of_all), default=None)


def wait_for_the_model(world: World) -> None:
    """Wait until the main process has written the model, even if the other processes are lost."""
    try:
        world.barrier()
    except RuntimeError as error:
        if not (world.is_main and is_lost_connection(error)):
            raise


def show_early_stop(plan: Plan, state: State) -> None:
    """Log why training stops before the last epoch, if it does."""
    reason = stopped_early(plan, state)
    if reason:
        paragraph(reason)
