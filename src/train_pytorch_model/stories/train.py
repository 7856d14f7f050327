"""Training: from an untrained model and two image directories to a trained model."""

import functools
import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from train_pytorch_model.data.chirality import with_flips_decided
from train_pytorch_model.data.decoders import Decoders
from train_pytorch_model.data.loader import start_readers
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.run_folder import FLAG, RunFolder, is_azure_job
from train_pytorch_model.formats.run_lock import run_lock
from train_pytorch_model.inputs.bad_images import left_out
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.loop.checkpointing import EVERY_S, UPLOADED_EVERY_S, Checkpointer
from train_pytorch_model.loop.checkpoints.checkpoint import Checkpoint, save_checkpoint
from train_pytorch_model.loop.metrics import Metrics
from train_pytorch_model.loop.passes import NotFiniteError, StepReport
from train_pytorch_model.loop.trainer import Trainer
from train_pytorch_model.machine.console import logger, paragraph, summary
from train_pytorch_model.machine.stop_requests import StopRequests, stop_requests
from train_pytorch_model.measures.evaluation import TOP_K
from train_pytorch_model.measures.time_budget import duration
from train_pytorch_model.stories.publish import publish
from train_pytorch_model.stories.report import budget, params_of, plan_of, report_on, stopped_early
from train_pytorch_model.tracking.mlflow_process import Mlflow
from train_pytorch_model.tracking.tracker import MlflowTracker, NoTracker
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ModuleOutOfMemoryError, OutputDirectoryError, TrainingError
from train_pytorch_model.words.wording import counted

DRY_RUN_STEPS = 3

History = Sequence[Mapping[str, float]]
"""The metrics of the finished epochs, one mapping per epoch."""


def train(
    config: TrainConfig,
    inputs: TrainingInputs,
    output: Path,
    world: World,
    mlflow: Mlflow,
    fresh: bool = False,
) -> None:
    """Train, validate after every epoch, stop early when patience runs out, and write the best epoch's model.

    Resumes an interrupted run of the same inputs and parameters, unless `fresh`. Raises `TrainingError` when
    training cannot continue, `StoppedError` when it is asked to stop, and whatever `Trainer` raises.
    """
    started_at = time.perf_counter()
    inputs = with_flips_decided(inputs, world)
    run, fingerprint = RunFolder.beside(output), inputs.fingerprint(config)
    # The smallest micro-batch that any process has recorded: they may not share a run folder.
    fitted = [images for images in world.gather([run.read_micro_batch(fingerprint, fresh)]) if images]
    token = ""
    with ExitStack() as stack:
        readers = stack.enter_context(start_readers(world))
        trainer = Trainer(config, inputs, world, min(fitted, default=None))
        log_plan(trainer)
        if world.is_main:
            run.make()
            stack.enter_context(run_lock(run.root, FLAG, logger.info))
            token = run.begin(fingerprint, fresh)
            check_output(output, FLAG, by_writing=False, token=token)  # another run may just have written it
        world.barrier()
        with stop_requests() as stop:
            keep = functools.partial(run.keep, fingerprint, token)
            unsaved, report = _train_epochs(trainer, readers, run, output, mlflow, keep, stop)
        state = trainer.state
        if state.best.epoch == 0:
            raise TrainingError(
                "The validation loss was not finite in any epoch, so there is no model to keep."
                f" Lower --learning-rate, now {config.learning_rate}."
            )
        if world.is_main:
            try:
                publish(output, inputs, state, fingerprint, token, report, mlflow)
            except OutputDirectoryError as error:  # most likely a full disk
                raise TrainingError(
                    f"The model is trained, but: {error} {_how_to_recover(run, unsaved)}"
                ) from error
    if world.is_main:
        run.remove()
    _wait_until_published(world)
    best = state.best
    paragraph(
        f"Trained in {duration(time.perf_counter() - started_at)}. Best epoch: {best.epoch}, validation"
        f" loss {best.metrics.loss:.4f}, accuracy {best.metrics.top1:.1%}."
    )
    paragraph(budget(trainer).verdict)


def _train_epochs(
    trainer: Trainer,
    readers: Decoders | None,
    run: RunFolder,
    output: Path,
    mlflow: Mlflow,
    keep: Callable[[History], None],
    stop: StopRequests,
) -> tuple[Checkpoint | None, str]:
    """Train the remaining epochs. Returns the last checkpoint if it is not on disk, and the report's HTML."""
    state, world = trainer.state, trainer.world
    tracker: MlflowTracker | NoTracker = NoTracker()
    if world.is_main:
        tracker = MlflowTracker(mlflow, params_of(trainer), run.mlflow_run)
    every_s = UPLOADED_EVERY_S if is_azure_job() else EVERY_S
    environment = trainer.environment()
    with (
        trainer.loader(readers) as loader,
        tracker,
        Checkpointer(run.checkpoints, every_s, environment, state, world, stop) as checkpointer,
    ):
        if checkpointer.resume():
            paragraph(progress_of(trainer), "Resumed")
            for record in state.position.history:
                tracker.log(record)
        while not trainer.is_over:
            try:
                trained = trainer.train(loader, checkpointer.after_step)
                checkpointer.after_training()
                validated = trainer.validate(loader, checkpointer.before_validation_batch)
            except NotFiniteError as error:
                trainer.roll_back(checkpointer.good, error)
                continue
            except ModuleOutOfMemoryError as error:
                run.write_micro_batch(error.images_at_once)
                raise
            epoch = state.position.epoch
            trainer.close_epoch(trained, validated)
            tracker.log(state.position.history[-1])
            if world.is_main:
                _keep_history(keep, state.position.history, run)
            checkpointer.keep()
            checkpointer.write_epoch(is_last=trainer.is_over)
            log_epoch(trainer, epoch, trained, validated, state.best.epoch == epoch)
        if why := stopped_early(trainer):
            paragraph(why)
        pages = report_on(trainer, output, loader, checkpointer.before_validation_batch)
        for page in pages:
            tracker.attach(page)
        return checkpointer.unsaved, pages[0].text if pages else ""


def dry_run(config: TrainConfig, inputs: TrainingInputs, world: World) -> None:
    """`--dry-run`: train and validate for a few steps, and write nothing."""
    inputs = with_flips_decided(inputs, world)
    trainer = Trainer(config, inputs, world)
    log_plan(trainer)
    with start_readers(world) as readers, trainer.loader(readers) as loader:
        trained = trainer.train(loader, lambda _: None, max_steps=DRY_RUN_STEPS)
        validated = trainer.validate(loader, max_steps=DRY_RUN_STEPS)
    steps = counted(trained.step, "step", "steps")
    for kind, loss in (("training", trained.metrics.loss), ("validation", validated.loss)):
        if not math.isfinite(loss):
            raise TrainingError(
                f"The {kind} loss is {loss} within {steps}. Lower --learning-rate, now"
                f" {config.learning_rate}, or warm up with --warmup-step-number."
            )
    # No accuracy: the few validation images all belong to the first category.
    logger.info(
        f"Dry run: {steps}, training loss {trained.metrics.loss:.4f}; nothing was written. Leave out"
        " --dry-run to train."
    )


def log_plan(trainer: Trainer) -> None:
    """Log the plan and all warnings before training starts."""
    config, inputs = trainer.config, trainer.inputs
    for title, text in plan_of(trainer).items():
        paragraph(text, title)
    if trainer.schedule.warmup_steps >= trainer.schedule.total_steps:
        logger.warning(
            f"--warmup-step-number {config.warmup_epochs} epochs is not less than --epochs"
            f" {config.epochs}: the learning rate only rises, and never decays."
        )
    for warning in inputs.warnings:
        logger.warning(warning)
    if inputs.bad_images:
        logger.warning(left_out(inputs.bad_images))


def progress_of(trainer: Trainer) -> str:
    """How far training has progressed, for the log."""
    position = trainer.state.position
    if trainer.is_over:
        return "after the last epoch; only the trained model directory is missing"
    if position.images_done == 0:
        return f"at the beginning of epoch {position.epoch}"
    return f"in epoch {position.epoch}, after {position.images_done:,} of {len(trainer.training):,} images"


def log_epoch(trainer: Trainer, epoch: int, trained: StepReport, validated: Metrics, is_best: bool) -> None:
    """Log the results of one epoch in one line."""
    has_top5 = len(trainer.inputs.categories) > TOP_K  # otherwise it is always 100 %
    summary(
        f"Epoch {epoch}/{trainer.config.epochs}",
        f"training loss {trained.metrics.loss:.4f}",
        f"validation loss {validated.loss:.4f}",
        f"top-1 {validated.top1:.1%}",
        *(["best"] if is_best else []),
        *([f"top-5 {validated.top5:.1%}"] if has_top5 else []),
        f"{trained.images_per_second:.1f} images/s",
    )


def _wait_until_published(world: World) -> None:
    """Wait until the main process has written the model, which then no longer needs the other processes."""
    try:
        world.barrier()
    except RuntimeError as error:
        if not (world.is_main and is_lost_connection(error)):
            raise


def _keep_history(keep: Callable[[History], None], history: History, run: RunFolder) -> None:
    try:
        keep(history)
    except OSError as error:  # the whole history is written again after the next epoch, and with the model
        logger.warning(f"{run.root} cannot be written: {error.strerror}. Training continues.")


def _how_to_recover(run: RunFolder, unsaved: Checkpoint | None) -> str:
    """What to do about a trained model that could not be written: where its checkpoint is, what to run."""
    retry = "The same command writes it without training again."
    if unsaved is None:
        return retry
    with suppress(OSError):  # the partial model has been deleted, so there may be space now
        save_checkpoint(run.checkpoints, unsaved)
        return retry
    with suppress(OSError):
        elsewhere = Path(tempfile.mkdtemp(prefix="train_pytorch_model-"))
        save_checkpoint(elsewhere, unsaved)
        return f"Its checkpoint is in {elsewhere}. Move its two files to {run.checkpoints}. {retry}"
    return "Nor could its checkpoint be written, there or to the temporary folder: the training is lost."
