"""The report that is written after a run."""

import platform
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model import __version__
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.run_folder import REPORT
from train_pytorch_model.inputs.advice import learning_warnings
from train_pytorch_model.inputs.bad_images import readable_images
from train_pytorch_model.loop.batches import Batches
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.epoch import validate_best
from train_pytorch_model.loop.plan import Plan, describe
from train_pytorch_model.loop.saving import Saver
from train_pytorch_model.loop.state import ImageResults, State
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.measures import evaluation
from train_pytorch_model.measures.evaluation_directory import (
    CONFUSION_MATRIX,
    confusion_matrix_csv,
    mistake_rows,
)
from train_pytorch_model.pages.evaluation_page import MAX_MISTAKES, with_pictures
from train_pytorch_model.pages.report_page import DataSet, Report, render_report
from train_pytorch_model.tracking.tracker import Attachment
from train_pytorch_model.words.wording import counted

TITLE = "Report"
MAX_MATRIX = 1000  # categories; a larger matrix, nearly all zeros, makes a file above 2 MB
PACKAGES = ("torch", "torchvision", "numpy", "pillow")


def stopped_early(plan: Plan, state: State) -> str:
    """Why a run ended before its last epoch, and what it skipped; empty if it did not."""
    epochs, history = plan.config.epochs, state.progress.history
    done = len(history)
    if not state.patience.is_exhausted or done >= epochs:
        return ""
    lr, spent, last = history[-1]["Learning rate"], state.patience.spent, plan.framings[-1]
    is_small = plan.framings[done - 1] != last
    unseen = f", and images would have become {last.height} x {last.width} px" if is_small else ""
    return (
        f"Stopped early: {counted(spent, 'epoch', 'epochs')} in a row without a lower validation"
        f" loss. This skipped {epochs - done} of {epochs} epochs, in which the learning rate would have"
        f" continued from {lr:.2g}, {lr / plan.schedule.peak_lr:.0%} of its peak{unseen}; a larger --patience"
        " trains them."
    )


def report_on(engine: Engine, state: State, batches: Batches, saver: Saver, output: Path) -> list[Attachment]:
    """Make the report and the confusion matrix of a finished run; empty if there is no report.

    They show the best epoch's validation, as computed at that time. Only the main process returns them. Every
    failure is just a warning, because the model is already trained.
    """
    if state.best.epoch == 0:
        return []
    results = _best_results(engine, state, batches, saver)
    try:
        results_of_all = engine.world.gather_on_main([results])
        if not engine.world.is_main:
            return []
        return _attachments(engine.plan, state, output, results_of_all)
    except Exception as error:  # the model works without the page
        logger.warning(f"{REPORT} could not be created: {_reason(error)}. The model is not affected.")
        return []


def _best_results(engine: Engine, state: State, batches: Batches, saver: Saver) -> ImageResults | str:
    """This process's predictions, or why there are none: the other processes wait for an answer."""
    try:
        if state.best.epoch not in state.results:
            left = batches.validation(state, is_last=True)
            with progress_bar(len(left), TITLE) as bar:
                for _ in validate_best(engine, state, left):
                    saver.after_validation_batch()
                    bar.advance()
        return state.results[state.best.epoch]
    except Exception as error:
        return _reason(error)


def _attachments(
    plan: Plan, state: State, output: Path, answers: Sequence[ImageResults | str]
) -> list[Attachment]:
    results_of_all = [answer for answer in answers if isinstance(answer, ImageResults)]
    if len(results_of_all) < len(answers):
        raise RuntimeError(next(answer for answer in answers if isinstance(answer, str)))
    inputs, progress = plan.inputs, state.progress
    training, validation = state.images["training"], state.images["validation"]
    rejected = {index: reason for results in results_of_all for index, reason in results.rejected.items()}
    _, lost = readable_images(validation, rejected)
    outcomes = evaluation.join([results.outcomes for results in results_of_all])
    indices = np.concatenate([results.indices for results in results_of_all])
    # The same order as in `evaluate`, for any number of processes: it breaks ties.
    order = np.argsort(indices)
    outcomes, indices = outcomes.select(order), indices[order]
    evaluated = evaluation.evaluate(outcomes, len(inputs.categories))
    wrong = evaluated.mistakes[:MAX_MISTAKES]
    mistakes = mistake_rows(outcomes, wrong, inputs.validation, indices[wrong])
    page = render_report(
        Report(
            spec=inputs.spec,
            evaluation=evaluated,
            mistakes=with_pictures(mistakes, validation.root),
            precision=plan.precision.name,
            config=plan.config,
            recipe=inputs.recipe,
            plan=describe(plan),
            history=progress.history,
            best_epoch=state.best.epoch,
            stopped=stopped_early(plan, state),
            advice=list(learning_warnings(training.class_counts(), inputs.model)),
            rollbacks=progress.rollbacks,
            training=_data_set(training),
            validation=_data_set(validation),
            bad_images=[*progress.bad_images, *lost],
            budget=state.budget(),
            versions=_versions(plan.world),
            command=_command(plan, output),
            fingerprint=plan.fingerprint,
            ended=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        )
    )
    attachments = [Attachment(REPORT, page)]
    if len(inputs.categories) <= MAX_MATRIX:
        attachments.append(Attachment(CONFUSION_MATRIX, confusion_matrix_csv(evaluated, inputs.categories)))
    return attachments


def _data_set(images: ImageDirectory) -> DataSet:
    return DataSet(images.port, _name(images.root), images.class_counts(), images.ignored)


def _name(path: Path) -> str:
    """The last component of a path: the rest is private."""
    return path.resolve().name


def _versions(world: World) -> dict[str, str]:
    versions = {
        "train-pytorch-model": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in PACKAGES},
        "System": f"{platform.system()} {platform.machine()}",
        "Processes": str(world.size),
    }
    if world.device.type == "cuda":
        versions |= {"CUDA": str(torch.version.cuda), "GPU": torch.cuda.get_device_name(world.device)}
    return versions


def _command(plan: Plan, output: Path) -> list[str]:
    """The command line, one option per line, with folders but not their paths."""
    inputs, world = plan.inputs, plan.world
    program = "python -m train_pytorch_model train"
    if world.size > 1:
        nodes = world.size // world.local_size
        spread = "--standalone" if nodes == 1 else f"--nnodes={nodes}"
        program = f"torchrun {spread} --nproc-per-node={world.local_size} -m train_pytorch_model train"
    options = {
        "--untrained-model": _name(inputs.model.root),
        "--training-dataset": _name(inputs.training.root),
        "--validation-dataset": _name(inputs.validation.root),
        "--trained-model": _name(output),
        **plan.config.as_flags(),
    }
    return [program, *(f"{flag} {shlex.quote(str(value))}" for flag, value in options.items())]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
