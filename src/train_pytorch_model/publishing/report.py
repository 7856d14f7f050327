"""The report on a training, and the tables beside it."""

import platform
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import torch

from train_pytorch_model import __version__
from train_pytorch_model.config.wording import counted, parameter, reason_of
from train_pytorch_model.distributed.world import World
from train_pytorch_model.evaluation import calibration
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.race_table import HEADER, table_rows
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.trained_directory import REPORT
from train_pytorch_model.formats.writing import csv_text
from train_pytorch_model.inference.explain import explain
from train_pytorch_model.inputs.advice import learning_warnings
from train_pytorch_model.inputs.unreadable_images import without_unreadable_images
from train_pytorch_model.machine.console import logger
from train_pytorch_model.publishing.examine import Examination
from train_pytorch_model.publishing.run_description import command_of
from train_pytorch_model.publishing.training_gallery import training_gallery
from train_pytorch_model.reports.galleries import (
    files_of_suspects,
    suspects_gallery,
    twins_gallery,
)
from train_pytorch_model.reports.gallery import Gallery
from train_pytorch_model.reports.training_report import Report, render_report
from train_pytorch_model.reports.view import view_of
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.plan_text import describe
from train_pytorch_model.training.state import State

RACE_TABLE = "race.csv"


def stopped_early(plan: Plan, state: State) -> str:
    """Return why a run ended before its last epoch, and what it skipped; empty if it did not."""
    epochs = plan.config.epochs
    done = len(state.progress.history)
    if state.progress.is_out_of_time:
        if plan.inputs.recipe.freeze_backbone:
            return ""  # nothing was to be trained
        return _out_of_time(done, epochs)
    spent = state.patience_spent
    if spent < plan.config.patience or done >= epochs:
        return ""
    lr = state.progress.history[-1]["Learning rate"]
    last = plan.framings[-1]
    larger_images = ""
    if plan.framings[done - 1] != last:
        larger_images = f", and images would have become {last.height} x {last.width} px"
    return (
        f"Stopped early: {counted(spent, 'epoch', 'epochs')} in a row without a lower validation"
        f" loss. This skipped {epochs - done} of {epochs} epochs, in which the learning rate would"
        f" have continued from {lr:.2g}, {lr / plan.schedule.peak_lr:.0%} of its"
        f" peak{larger_images}; a larger {parameter('patience')} trains them."
    )


def _out_of_time(done: int, epochs: int) -> str:
    """Return how far training has come in its time."""
    if not done:
        return (
            "The time was up before an epoch was complete: the model is the solved classifier. More"
            f" {parameter('minutes')} would train its other layers as well."
        )
    return (
        f"The time was up after {done} of {counted(epochs, 'epoch', 'epochs')}; more"
        f" {parameter('minutes')} train the others."
    )


def render_report_files(
    engine: Engine,
    state: State,
    output: Path,
    examination: Examination,
    tested: AnyEvaluation | None = None,
) -> dict[str, str]:
    """Return the report and tables of a finished run: name → content.

    They show the best epoch's validation, and what a test has said, if there was one; the engine's
    network gets the weights of that epoch. There are none, with a warning, if there can be no
    report.
    """
    categories = engine.plan.inputs.categories
    try:
        report = replace(_report(engine, state, output, examination), test=tested)
        files = {REPORT: render_report(report)}
        if report.race:
            files[RACE_TABLE] = csv_text([HEADER, *table_rows(report.race)])
        evaluation = examination.evaluation
        files |= view_of(evaluation).tables(evaluation, categories)
        return files | examination.tables
    except Exception as error:  # the model works without the page
        logger.warning(
            f"{REPORT} could not be created: {reason_of(error)}. The model is not affected."
        )
        return {}


def _report(engine: Engine, state: State, output: Path, examination: Examination) -> Report:
    plan = engine.plan
    inputs = plan.inputs
    progress = state.progress
    training = state.images["training"]
    validation = state.images["validation"]
    advice = learning_warnings(training.class_counts(), inputs.model, inputs.recipe.image_size)
    _, unreadable = without_unreadable_images(validation, examination.unreadable, is_limited=False)
    engine.network.load_state_dict(state.best.weights)
    return Report(
        spec=inputs.spec,
        evaluation=examination.evaluation,
        calibrated=calibration.describe_temperature(examination.temperature),
        look_alikes=examination.about_look_alikes,
        galleries=_galleries(engine, training, examination),
        files=view_of(examination.evaluation).files(examination.evaluated),
        about_suspects="" if examination.suspects else examination.about_suspects,
        precision=plan.precision.name,
        config=plan.config,
        recipe=inputs.recipe,
        plan=describe(plan, engine.lr_factors),
        history=progress.history,
        best_epoch=state.best.epoch,
        stopped=stopped_early(plan, state),
        advice=list(advice),
        rollbacks=progress.rollbacks,
        training=training,
        validation=validation,
        unreadable_images=[*progress.unreadable_images, *unreadable],
        budget=state.budget(),
        versions=_versions(plan.world),
        command=command_of(plan, output),
        fingerprint=plan.fingerprint,
        race=inputs.race,
        test_images=inputs.test,
        ended=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )


def _galleries(engine: Engine, training: ImageDirectory, examination: Examination) -> list[Gallery]:
    """Return the pictures of the report; `training` holds the readable training images."""
    inputs = engine.plan.inputs
    data_sets = (inputs.training, inputs.validation)
    colours = inputs.spec.framing.colours
    view = view_of(examination.evaluation)
    explain_validation = partial(explain, engine.network, inputs.spec, inputs.validation)
    return [
        *suspects_gallery(examination.suspects, data_sets, colours, view.correcting),
        *view.galleries(
            examination.evaluation,
            examination.evaluated,
            colours,
            explain_validation,
            shown_before=files_of_suspects(examination.suspects, inputs.validation.port),
        ),
        *twins_gallery(examination.twins, data_sets, colours, view.correcting),
        training_gallery(engine.plan, training),
    ]


def _versions(world: World) -> dict[str, str]:
    """Return what the run was computed by and on."""
    versions = {
        "train-pytorch-model": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "numpy", "pillow")},
        "System": f"{platform.system()} {platform.machine()}",
        "Processes": str(world.size),
    }
    if world.device.type == "cuda":
        versions["CUDA"] = str(torch.version.cuda)
        versions["GPU"] = torch.cuda.get_device_name(world.device)
    return versions
