"""What the validation of the best epoch says about the model that will be published, and the report
on it.
"""

import platform
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from train_pytorch_model import __version__
from train_pytorch_model.formats.run_folder import REPORT
from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.image_classifier.predictions import energies_of
from train_pytorch_model.inputs.advice import learning_warnings
from train_pytorch_model.inputs.bad_images import without_bad_images
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.inputs.twins import NUM_BYTES
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.epoch import Batches, validate_best
from train_pytorch_model.loop.plan import Plan, describe, params_of
from train_pytorch_model.loop.saving import Saver
from train_pytorch_model.loop.state import ImageResults, State
from train_pytorch_model.machine.console import logger, paragraph, progress_bar
from train_pytorch_model.measures import calibration, data_quality, evaluation
from train_pytorch_model.measures.data_quality import SUSPECTS, TWINS, Familiar, Suspect, TwinRow
from train_pytorch_model.measures.evaluation import Evaluation, Outcomes
from train_pytorch_model.measures.evaluation_directory import CONFUSION_MATRIX, confusion_matrix
from train_pytorch_model.pages.page import galleries_of, suspects_gallery, twins_gallery
from train_pytorch_model.pages.results import Report, files_of_cells, render_report
from train_pytorch_model.stories.pictures import explain, training_gallery
from train_pytorch_model.tracking.tracker import RunDescription
from train_pytorch_model.words.errors import counted, reason_of

WORTH_A_WARNING = 0.01  # of the validation images
MAX_MATRIX = 1000  # categories; a larger matrix, nearly all zeros, makes a file above 2 MB


@dataclass(frozen=True)
class Examined:
    """What is known about the model to be published, on the main process."""

    outcomes: Outcomes  # of all validation images, in their order, by the model as it is published
    evaluation: Evaluation  # of these outcomes
    indices: np.ndarray  # (N,), int64: the indices of these images in the given validation dataset
    rejected: dict[int, str]  # images that could not be read this time: index → reason
    temperature: calibration.Temperature
    twins: Sequence[TwinRow]
    familiar: Familiar  # validation images that look like training images
    training_hashes: (
        np.ndarray
    )  # (T, 16), uint8: of the given training images; zeros for those without
    energies: np.ndarray  # (N,), float64: how unlike training images the N are; (0,) without logits
    suspects: Sequence[Suspect]  # the most suspicious first

    @property
    def tables(self) -> dict[str, str]:
        """The CSV files of suspects and of twins, if there are any: name → content."""
        found = {SUSPECTS: (Suspect, self.suspects), TWINS: (TwinRow, self.twins)}
        return {
            name: csv_text(table_of(kind, rows)) for name, (kind, rows) in found.items() if rows
        }

    @property
    def metrics(self) -> dict[str, float]:
        """What is logged of the published model."""
        seen, without = self.familiar.images, self.familiar.accuracy_without
        return {
            "Validation images like training images": seen,
            **({"Top 1 accuracy without them": without} if seen and without is not None else {}),
            "Suspect categories": len(self.suspects),
            "Temperature": self.temperature.value,
            "Loss before calibration": self.temperature.before.loss,
            "Loss after calibration": self.temperature.after.loss,
            "Calibration error before": self.temperature.before.error,
            "Calibration error after": self.temperature.after.error,
        }


def examine(engine: Engine, state: State, batches: Batches, saver: Saver) -> Examined | None:
    """Examine the best epoch by its validation.

    Collective; only the main process returns the result.

    It is None, with a warning, if an interrupted run cannot validate that epoch again, and without
    one if no epoch is the best.
    """
    if state.best.epoch == 0:
        return None
    world, inputs, cache = engine.world, engine.plan.inputs, engine.plan.cache
    margins = state.margins.reduce(world)
    answers = world.gather_on_main([_best_results(engine, state, batches, saver)])
    hashes_of_all = world.gather_on_main([state.hashes])
    if not world.is_main:
        return None
    if reason := next((answer for answer in answers if isinstance(answer, str)), None):
        logger.warning(
            f"The best epoch cannot be validated again: {reason}. The model has no report, and its"
            " probabilities are not calibrated."
        )
        return None
    results = [answer for answer in answers if isinstance(answer, ImageResults)]
    indices = np.concatenate([each.indices for each in results])
    # The same order as in `evaluate`, for any number of processes: it breaks ties.
    order = np.argsort(indices)
    indices = indices[order]
    outcomes = evaluation.join([each.outcomes for each in results]).select(order)
    logits = np.concatenate([each.logits for each in results])
    logits = logits[order] if len(logits) else logits
    temperature = calibration.fit_temperature(logits, outcomes)
    paragraph(calibration.describe(temperature))
    if temperature.value != 1:
        outcomes = calibration.calibrate(outcomes, logits, temperature.value)
    scaled = logits / temperature.value
    evaluated = evaluation.evaluate(outcomes, len(inputs.categories))
    is_better = evaluated.is_better_than_guessing
    rows = np.concatenate([inputs.training.rows, cache.num_training + inputs.validation.rows])
    known = [hashes for hashes in hashes_of_all if len(hashes)]
    hashes = np.maximum.reduce(known)[rows] if known else np.zeros((len(rows), NUM_BYTES), np.uint8)
    twins, seen = data_quality.find_twins(
        inputs.training, inputs.validation, inputs.identical.pairs, hashes
    )
    familiar = Familiar.of(seen, outcomes.target_ranks[~seen[indices]] == 0)
    if text := familiar.describe(evaluated.accuracy):
        # A few of many change nothing, and in tiny images may be chance.
        (logger.warning if seen.mean() >= WORTH_A_WARNING else paragraph)(text)
    return Examined(
        outcomes=outcomes,
        evaluation=evaluated,
        indices=indices,
        rejected={index: reason for each in results for index, reason in each.rejected.items()},
        temperature=temperature,
        twins=twins,
        familiar=familiar,
        training_hashes=hashes[: len(inputs.training)],
        energies=energies_of(scaled) if len(scaled) else np.empty(0),
        suspects=_suspects(inputs, margins, indices, outcomes, scaled) if is_better else [],
    )


def _suspects(
    inputs: TrainingInputs,
    margins: tuple[np.ndarray, np.ndarray],
    indices: np.ndarray,
    outcomes: Outcomes,
    logits: np.ndarray,
) -> list[Suspect]:
    parts = [(inputs.training, data_quality.suspects_by_margin(*margins))]
    if len(logits):
        found = data_quality.suspects_by_prediction(outcomes.targets, calibration.softmax(logits))
        parts.append((inputs.validation, replace(found, indices=indices[found.indices])))
    suspects = data_quality.suspect_rows(parts)
    if suspects:
        paragraph(
            f"{counted(len(suspects), 'image', 'images')} may have a wrong category: see"
            f" {SUSPECTS}."
        )
    return suspects


def _best_results(
    engine: Engine, state: State, batches: Batches, saver: Saver
) -> ImageResults | str:
    """This process's predictions, or why there are none: the other processes wait for an answer."""
    try:
        if state.best.epoch not in state.results:
            left = batches.validation(state, is_last=True)
            with progress_bar(left.num_batches, "Report") as bar:
                for _ in validate_best(engine, state, left):
                    saver.after_validation_batch()
                    bar.advance()
        return state.results[state.best.epoch]
    except Exception as error:
        return reason_of(error)


def stopped_early(plan: Plan, state: State) -> str:
    """Why a run ended before its last epoch, and what it skipped; empty if it did not."""
    epochs, history = plan.config.epochs, state.progress.history
    done, spent = len(history), state.patience_spent
    if spent < plan.config.patience or done >= epochs:
        return ""
    lr, last = history[-1]["Learning rate"], plan.framings[-1]
    is_small = plan.framings[done - 1] != last
    unseen = f", and images would have become {last.height} x {last.width} px" if is_small else ""
    return (
        f"Stopped early: {counted(spent, 'epoch', 'epochs')} in a row without a lower validation"
        f" loss. This skipped {epochs - done} of {epochs} epochs, in which the learning rate would"
        " have"
        f" continued from {lr:.2g}, {lr / plan.schedule.peak_lr:.0%} of its peak{unseen}; a larger"
        " --patience"
        " trains them."
    )


def report_on(engine: Engine, state: State, output: Path, examined: Examined) -> dict[str, str]:
    """The report and tables of a finished run: name → content; without a report, a warning and
    nothing.

    They show the best epoch's validation; the engine's network gets the weights of that epoch.
    """
    categories = engine.plan.inputs.categories
    try:
        files = {REPORT: render_report(_report(engine, state, output, examined))}
        if len(categories) <= MAX_MATRIX:
            files[CONFUSION_MATRIX] = csv_text(confusion_matrix(examined.evaluation, categories))
        return files | examined.tables
    except Exception as error:  # the model works without the page
        logger.warning(
            f"{REPORT} could not be created: {reason_of(error)}. The model is not affected."
        )
        return {}


def _report(engine: Engine, state: State, output: Path, examined: Examined) -> Report:
    plan, progress, inputs = engine.plan, state.progress, engine.plan.inputs
    spec, given = inputs.spec, (inputs.training, inputs.validation)
    training, validation = state.images["training"], state.images["validation"]
    _, lost = without_bad_images(validation, examined.rejected, is_limited=False)
    results = examined.outcomes, inputs.validation, examined.indices
    versions = {
        "train-pytorch-model": __version__,
        "Python": platform.python_version(),
        **{name: version(name) for name in ("torch", "torchvision", "numpy", "pillow")},
        "System": f"{platform.system()} {platform.machine()}",
        "Processes": str(plan.world.size),
    }
    if plan.world.device.type == "cuda":
        versions |= {
            "CUDA": str(torch.version.cuda),
            "GPU": torch.cuda.get_device_name(plan.world.device),
        }
    engine.network.load_state_dict(state.best.weights)
    return Report(
        spec=spec,
        evaluation=examined.evaluation,
        calibrated=calibration.describe(examined.temperature),
        seen=examined.familiar.describe(examined.evaluation.accuracy),
        galleries=[
            *suspects_gallery(examined.suspects, given, spec.framing.colours),
            *galleries_of(
                examined.evaluation,
                *results,
                spec.framing.colours,
                partial(explain, engine.network, spec, inputs.validation),
            ),
            *twins_gallery(examined.twins, given, spec.framing.colours),
            training_gallery(plan, training),
        ],
        files=files_of_cells(*results),
        precision=plan.precision.name,
        config=plan.config,
        recipe=inputs.recipe,
        plan=describe(plan),
        history=progress.history,
        best_epoch=state.best.epoch,
        stopped=stopped_early(plan, state),
        advice=list(
            learning_warnings(training.class_counts(), inputs.model, inputs.recipe.image_size)
        ),
        rollbacks=progress.rollbacks,
        training=training,
        validation=validation,
        bad_images=[*progress.bad_images, *lost],
        budget=state.budget(),
        versions=versions,
        command=_command(plan, output),
        fingerprint=plan.fingerprint,
        ended=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
    )


def _name(path: Path) -> str:
    """The last component of a path: the rest is private."""
    return path.resolve().name


def describe_run(plan: Plan, output: Path) -> RunDescription:
    """What MLflow shows of the run: like the report, folders without their paths."""
    inputs = plan.inputs
    tags = {
        "output": _name(output),
        "version": __version__,
        "architecture": inputs.model.architecture,
        "command": " ".join(_command(plan, output)),
    }
    data_sets = {"training": inputs.training, "validation": inputs.validation}
    return RunDescription(_name(output), params_of(plan), tags, data_sets)


def _command(plan: Plan, output: Path) -> list[str]:
    """The command line, one option per line, with folders but not their paths."""
    inputs, world = plan.inputs, plan.world
    program = "python -m train_pytorch_model train"
    if world.size > 1:
        nodes = world.size // world.local_size
        spread = "--standalone" if nodes == 1 else f"--nnodes={nodes}"
        program = (
            f"torchrun {spread} --nproc-per-node={world.local_size} -m train_pytorch_model train"
        )
    options = {
        "--untrained-model": _name(inputs.model.root),
        "--training-dataset": inputs.training.name,
        "--validation-dataset": inputs.validation.name,
        "--trained-model": _name(output),
        **plan.config.as_flags(),
    }
    return [program, *(f"{flag} {shlex.quote(str(value))}" for flag, value in options.items())]
