"""The report that is written after a run."""

import platform
import shlex
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from train_pytorch_model import __version__
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.run_folder import REPORT
from train_pytorch_model.inputs.advice import learning_warnings
from train_pytorch_model.inputs.bad_images import readable_images
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.plan import Plan, describe, params_of
from train_pytorch_model.loop.state import State
from train_pytorch_model.machine.console import logger
from train_pytorch_model.measures import calibration
from train_pytorch_model.measures.evaluation_directory import (
    CONFUSION_MATRIX,
    confusion_matrix_csv,
)
from train_pytorch_model.measures.suspects import SUSPECTS, suspects_csv
from train_pytorch_model.measures.twins import TWINS, describe_seen, twins_csv
from train_pytorch_model.pages.evaluation_page import files_of_cells
from train_pytorch_model.pages.page import galleries_of, suspects_gallery, twins_gallery
from train_pytorch_model.pages.report_page import DataSet, Report, render_report
from train_pytorch_model.stories.examine import Examined
from train_pytorch_model.stories.explain import explain
from train_pytorch_model.stories.training_batch import training_gallery
from train_pytorch_model.tracking.description import RunDescription, UsedDataSet
from train_pytorch_model.tracking.tracker import Attachment
from train_pytorch_model.words.wording import counted, reason_of

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


def report_on(engine: Engine, state: State, output: Path, examined: Examined) -> list[Attachment]:
    """Make the report and the confusion matrix of a finished run; empty if there is no report.

    They show the best epoch's validation; the engine's network gets the weights of that epoch. Every failure
    is just a warning, because the model is trained.
    """
    try:
        return _attachments(engine, state, output, examined)
    except Exception as error:  # the model works without the page
        logger.warning(f"{REPORT} could not be created: {reason_of(error)}. The model is not affected.")
        return []


def _attachments(engine: Engine, state: State, output: Path, examined: Examined) -> list[Attachment]:
    plan, progress = engine.plan, state.progress
    inputs = plan.inputs
    training, validation = state.images["training"], state.images["validation"]
    _, lost = readable_images(validation, examined.rejected)
    evaluated, outcomes, indices = examined.evaluation, examined.outcomes, examined.indices
    engine.network.load_state_dict(state.best.weights)
    data_sets, colours = (inputs.training, inputs.validation), inputs.framing.colours
    page = render_report(
        Report(
            spec=inputs.spec,
            evaluation=evaluated,
            calibrated=calibration.describe(examined.temperature),
            seen=describe_seen(examined.twins, evaluated.accuracy, examined.accuracy_without_twins),
            galleries=[
                *suspects_gallery(examined.suspects, data_sets, colours),
                *galleries_of(
                    evaluated,
                    outcomes,
                    inputs.validation,
                    indices,
                    colours,
                    partial(explain, engine.network, inputs.spec, inputs.validation),
                ),
                *twins_gallery(examined.twins.rows, data_sets, colours),
                training_gallery(plan, training),
            ],
            files=files_of_cells(outcomes, inputs.validation, indices),
            precision=plan.precision.name,
            config=plan.config,
            recipe=inputs.recipe,
            plan=describe(plan),
            history=progress.history,
            best_epoch=state.best.epoch,
            stopped=stopped_early(plan, state),
            advice=list(learning_warnings(training.class_counts(), inputs.model, inputs.recipe.image_size)),
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
    if examined.suspects:
        attachments.append(Attachment(SUSPECTS, suspects_csv(examined.suspects)))
    if examined.twins.rows:
        attachments.append(Attachment(TWINS, twins_csv(examined.twins.rows)))
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


def describe_run(plan: Plan, output: Path) -> RunDescription:
    """What MLflow shows of the run: like the report, folders without their paths."""
    inputs = plan.inputs
    tags = {
        "output": _name(output),
        "version": __version__,
        "architecture": inputs.model.architecture,
        "command": " ".join(_command(plan, output)),
    }
    data_sets = [
        UsedDataSet(_name(images.root), context, plan.fingerprint[f"{context}_dataset"], len(images))
        for context, images in (("training", inputs.training), ("validation", inputs.validation))
    ]
    return RunDescription(_name(output), params_of(plan), tags, data_sets)


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
