"""The plan that is printed before a run, and the report that is written after it."""

import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from train_pytorch_model import __version__
from train_pytorch_model.data.loader import Loader, num_readers
from train_pytorch_model.distributed.world import World
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.run_folder import REPORT
from train_pytorch_model.image_classifier.architectures import FAMILY_OF
from train_pytorch_model.inputs.bad_images import readable_images
from train_pytorch_model.inputs.opening import TrainingInputs, learning_warnings
from train_pytorch_model.loop.fine_tuning import STATISTICS_SHARE, num_sampled
from train_pytorch_model.loop.passes import LR_FACTOR, ImageResults
from train_pytorch_model.loop.trainer import Trainer
from train_pytorch_model.machine.console import logger
from train_pytorch_model.measures import evaluation
from train_pytorch_model.measures.evaluation_directory import (
    CONFUSION_MATRIX,
    confusion_matrix_csv,
    mistake_rows,
)
from train_pytorch_model.measures.time_budget import TimeBudget, budget_of
from train_pytorch_model.networks.batch_norms import FROZEN
from train_pytorch_model.networks.layers import batch_norms
from train_pytorch_model.pages.evaluation_page import MAX_MISTAKES, with_pictures
from train_pytorch_model.pages.report_page import DataSet, Report, render_report
from train_pytorch_model.tracking.tracker import Attachment
from train_pytorch_model.words.wording import counted

TITLE = "Report"
MAX_MATRIX = 1000  # categories; a larger matrix, nearly all zeros, makes a file above 2 MB
PACKAGES = ("torch", "torchvision", "numpy", "pillow")


def plan_of(trainer: Trainer) -> dict[str, str]:
    """The plan of a run, title → text, which gives the reason for every derived number."""
    config, inputs, world = trainer.config, trainer.inputs, trainer.world
    recipe, framing = inputs.recipe, inputs.framing
    kind = "pretrained " if inputs.model.is_pretrained else ""
    kind = "trained " if inputs.model.is_trained else kind
    share = recipe.label_smoothing
    smoothing = {"Smoothing": f"label smoothing {share:g}, in the training loss only"} if share else {}
    keeps = any(norm.momentum == FROZEN for norm in batch_norms(trainer.network))
    num_images = num_sampled(inputs, config.batch_size)
    kept = (
        f"use frozen pretrained statistics, moved {STATISTICS_SHARE:.0%} towards those of {num_images}"
        " training images"
    )
    norms = {"Batch norms": kept} if keeps and not recipe.freeze_backbone else {}
    processes = counted(world.size, "process", "processes")
    images_a_step = config.batch_size * world.size
    up_to = "up to " if len(inputs.training) % images_a_step else ""
    readers = num_readers(world)
    decoding = f"{readers} processes for loading images" if readers else f"{world.cores} threads for decoding"
    return {
        "Model": f"{kind}{inputs.model.architecture}, {len(inputs.categories)} categories",
        "Images": f"{len(inputs.training):,} for training, {len(inputs.validation):,} for validation",
        "Size": f"{framing.height} x {framing.width} px ({inputs.size_reason}){_training_sizes(trainer)}",
        "Augmenting": _augmentation(inputs),
        **smoothing,
        "Steps": f"{trainer.steps_per_epoch:,} per epoch, {trainer.schedule.total_steps:,} in total:"
        f" {up_to}{images_a_step} images per step = batch size {config.batch_size} x {processes}",
        "Peak LR": f"{trainer.schedule.peak_lr:g} = learning rate {config.learning_rate:g} x {processes},"
        f" {_schedule(trainer)}",
        **norms,
        "Precision": str(trainer.precision),
        "Device": f"{world.device.type}, {decoding}",
        "Decoding": trainer.cache_plan.summary,
    }


def _augmentation(inputs: TrainingInputs) -> str:
    """Crops, flips and CutMix, as a phrase."""
    crop, share = inputs.recipe.augmentation, inputs.recipe.cutmix
    cutmix = f", CutMix in {share:.0%} of the steps" if share else ""
    if inputs.recipe.horizontal_flip:
        return ("flip, no crop" if crop == "none" else f"{crop} and flip") + cutmix
    return crop + (f", no flip ({inputs.flip_reason})" if inputs.flip_reason else "") + cutmix


def _schedule(trainer: Trainer) -> str:
    """What the learning rate does after its peak, or before, and where it differs, as a phrase."""
    warmup_steps, peak_lr = trainer.schedule.warmup_steps, trainer.schedule.peak_lr
    warmup = f"{counted(warmup_steps, 'warmup step', 'warmup steps')}, then" if warmup_steps else "no warmup,"
    head, body = _lr_factors(trainer)
    rates = f"; {head * peak_lr:.2g} for the new last layer" if head != 1 else ""
    if body != 1:
        rates += f"; {body * peak_lr:.2g} for the backbone, the most it tolerates in"
        rates += f" {counted(trainer.config.epochs, 'epoch', 'epochs')}"
    return f"{warmup} polynomial decay{rates}"


def _training_sizes(trainer: Trainer) -> str:
    """The training resolutions, as a phrase; empty if they are the resolution for predictions."""
    by_epoch = trainer.training_framings
    first, last = by_epoch[0], by_epoch[-1]
    if first == last == trainer.inputs.framing:
        return ""
    sizes = f", trained at {first.height} x {first.width}"
    if first == last:
        return sizes
    return f"{sizes}, from epoch {by_epoch.index(last) + 1} on at {last.height} x {last.width}"


def _lr_factors(trainer: Trainer) -> tuple[float, float]:
    """Learning rates of head and backbone, as multiples of the schedule's; 1 for a frozen backbone."""
    factors = {
        parameter: float(group[LR_FACTOR])
        for group in trainer.state.optimizer.param_groups
        for parameter in group["params"]
    }
    head = trainer.network.get_submodule(FAMILY_OF[trainer.inputs.model.architecture].head)
    first, own = next(trainer.network.parameters()), next(head.parameters())
    return factors[own], factors.get(first, 1.0)


def params_of(trainer: Trainer) -> dict[str, Any]:
    """What to compare runs by, such as in MLflow: parameters, model, images, decided recipe."""
    inputs, world = trainer.inputs, trainer.world
    head, body = _lr_factors(trainer)
    return {
        **trainer.config.as_params(),
        "architecture": inputs.model.architecture,
        "pretrained": inputs.model.is_pretrained or inputs.model.is_trained,
        "processes": world.size,
        "device": world.device.type,
        "training_images": len(inputs.training),
        "validation_images": len(inputs.validation),
        "categories": len(inputs.categories),
        **asdict(inputs.recipe),
        "head_lr_factor": head,
        "body_lr_factor": body,
        "precision": trainer.precision.name,
    }


def stopped_early(trainer: Trainer) -> str:
    """Why a run ended before its last epoch, and what it skipped; empty if it did not."""
    state, epochs = trainer.state, trainer.config.epochs
    done = len(state.position.history)
    if not state.patience.is_exhausted or done >= epochs:
        return ""
    rate, spent = state.position.history[-1]["Learning rate"], state.patience.spent
    share = rate / trainer.schedule.peak_lr
    last = trainer.training_framings[-1]
    small = trainer.training_framings[done - 1] != last
    unseen = f", and images would have become {last.height} x {last.width} px" if small else ""
    return (
        f"Stopped early: {counted(spent, 'epoch', 'epochs')} in a row without a lower validation"
        f" loss. This skipped {epochs - done} of {epochs} epochs, in which the learning rate would have"
        f" continued from {rate:.2g}, {share:.0%} of its peak{unseen}; a larger --patience trains them."
    )


def budget(trainer: Trainer) -> TimeBudget:
    """Where the time of the run has gone so far."""
    trainer.take_time()
    return budget_of(trainer.state.position.times, trainer.state.position.run_s)


def report_on(
    trainer: Trainer, output: Path, loader: Loader, before_batch: Callable[[], None]
) -> list[Attachment]:
    """Make the report and the confusion matrix of a finished run; empty if there is no report.

    They show the best epoch's validation, as computed at that time. Only the main process returns them. Every
    failure is just a warning, because the model is already trained.
    """
    if trainer.state.best.epoch == 0:
        return []
    results = _best_results(trainer, loader, before_batch)
    try:
        results_of_all = trainer.world.gather_on_main([results])
        if not trainer.world.is_main:
            return []
        return _report(trainer, output, results_of_all)
    except Exception as error:  # the model works without the page
        logger.warning(f"{REPORT} could not be created: {_reason(error)}. The model is not affected.")
        return []


def _best_results(trainer: Trainer, loader: Loader, before_batch: Callable[[], None]) -> ImageResults | str:
    """This process's predictions, or why there are none: the other processes wait for an answer."""
    try:
        return trainer.results_of_best(TITLE, loader, before_batch)
    except Exception as error:
        return _reason(error)


def _report(trainer: Trainer, output: Path, answers: Sequence[ImageResults | str]) -> list[Attachment]:
    results_of_all = [answer for answer in answers if isinstance(answer, ImageResults)]
    if len(results_of_all) < len(answers):
        raise RuntimeError(next(answer for answer in answers if isinstance(answer, str)))
    inputs, categories, images = trainer.inputs, trainer.inputs.categories, trainer.validation
    rejected = {index: reason for results in results_of_all for index, reason in results.rejected.items()}
    _, lost = readable_images(images, rejected)
    outcomes = evaluation.joined([results.outcomes for results in results_of_all])
    places = np.concatenate([results.places for results in results_of_all])
    # The same order as in `evaluate`, for any number of processes: it breaks ties.
    order = np.argsort(places)
    outcomes, places = outcomes.select(order), places[order]
    evaluated = evaluation.evaluate(outcomes, len(categories))
    wrong = evaluated.mistakes[:MAX_MISTAKES]
    mistakes = mistake_rows(outcomes, wrong, inputs.validation, places[wrong])
    position = trainer.state.position
    page = render_report(
        Report(
            spec=inputs.spec,
            evaluation=evaluated,
            mistakes=with_pictures(mistakes, images.root),
            precision=trainer.precision.name,
            config=trainer.config,
            recipe=inputs.recipe,
            plan=plan_of(trainer),
            history=position.history,
            best_epoch=trainer.state.best.epoch,
            stopped=stopped_early(trainer),
            advice=learning_warnings(trainer.training.class_counts(), inputs.model, inputs.recipe),
            rollbacks=position.rollbacks,
            training=_data_set(trainer.training),
            validation=_data_set(images),
            bad_images=[*position.bad_images, *lost],
            budget=budget(trainer),
            versions=_versions(trainer.world),
            command=_command(trainer, output),
            fingerprint=inputs.fingerprint(trainer.config),
            ended=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        )
    )
    attachments = [Attachment(REPORT, page)]
    if len(categories) <= MAX_MATRIX:
        attachments.append(Attachment(CONFUSION_MATRIX, confusion_matrix_csv(evaluated, categories)))
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


def _command(trainer: Trainer, output: Path) -> list[str]:
    """The command line, one option per line, with folders but not their paths."""
    inputs, world = trainer.inputs, trainer.world
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
        **trainer.config.as_flags(),
    }
    return [program, *(f"{flag} {shlex.quote(str(value))}" for flag, value in options.items())]


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
