"""What the validation of the best epoch says about the model that will be published."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from train_pytorch_model.config.wording import reason_of
from train_pytorch_model.evaluation import calibration, metrics
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.writing import csv_text
from train_pytorch_model.image_classifier.predictions import energies_of
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.machine.console import logger, paragraph, progress_bar
from train_pytorch_model.publishing.find_suspects import Evidence, find_suspects
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES
from train_pytorch_model.quality.suspects import SUSPECTS, Suspect, suspects_csv
from train_pytorch_model.quality.training_look_alikes import TrainingLookAlikes
from train_pytorch_model.quality.twins import TWINS, TwinRow, find_twins, twins_table
from train_pytorch_model.training.batches import Batches
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.epoch import validate_best
from train_pytorch_model.training.plan import Plan
from train_pytorch_model.training.saver import Saver
from train_pytorch_model.training.state import ImageResults, State

WORTH_A_WARNING = 0.01  # of the validation images


@dataclass(frozen=True)
class Examination:
    """What is known about the model to be published, on the main process."""

    # All validation images, in their order, with the outcomes of the model as it is published; the
    # indices are those in the user's dataset.
    evaluated: EvaluatedImages
    evaluation: AnyEvaluation  # of these images
    unreadable: dict[int, str]  # images that could not be read this time: index → reason
    temperature: calibration.Temperature
    # By class index, from which probability on each is answered; None if one category is answered.
    thresholds: tuple[float, ...] | None
    twins: Sequence[TwinRow]
    look_alikes: TrainingLookAlikes  # validation images that look like training images
    # (T, 16), uint8: of the user's training images; zeros for those without.
    training_hashes: np.ndarray
    # (N,), float64: how unlike training images the N are; (0,) without logits.
    energies: np.ndarray
    suspects: Sequence[Suspect]  # the most suspicious first
    about_suspects: str  # what to know about them, or why there are none; may be empty
    race_accuracy: float | None = None  # of a race of networks, if there was one

    @property
    def tables(self) -> dict[str, str]:
        """Return the CSV files of suspects and of twins, if there are any: name → content."""
        tables = {}
        if self.suspects:
            tables[SUSPECTS] = suspects_csv(self.suspects)
        if self.twins:
            tables[TWINS] = csv_text(twins_table(self.twins))
        return tables

    @property
    def about_look_alikes(self) -> str:
        """Return what validation images mean that look like training images, in words."""
        return self.look_alikes.describe(self.evaluation.accuracy, self.evaluation.measure)

    @property
    def metrics(self) -> dict[str, float]:
        """Return what is logged of the published model."""
        metrics: dict[str, float] = {
            "Validation images like training images": self.look_alikes.images
        }
        accuracy_without = self.look_alikes.accuracy_without
        if self.look_alikes.images and accuracy_without is not None:
            metrics[f"{self.evaluation.accuracy_name} without them"] = accuracy_without
        if self.race_accuracy is not None:
            metrics["Out-of-fold accuracy"] = self.race_accuracy
        return metrics | {
            **self.evaluation.further_metrics,
            "Suspect categories": len(self.suspects),
            "Temperature": self.temperature.value,
            "Loss before calibration": self.temperature.before.loss,
            "Loss after calibration": self.temperature.after.loss,
            "Calibration error before": self.temperature.before.error,
            "Calibration error after": self.temperature.after.error,
        }


def examine(engine: Engine, state: State, batches: Batches, saver: Saver) -> Examination | None:
    """Examine the best epoch by its validation.

    Collective; only the main process returns the result. It is None, with a warning, if an
    interrupted run cannot validate that epoch again, and without one if no epoch is the best.
    """
    if not state.best.is_found:
        return None
    world = engine.world
    inputs = engine.plan.inputs
    margins = state.margins.reduce(world)
    answers = world.gather_on_main([_best_results(engine, state, batches, saver)])
    hashes_of_ranks = world.gather_on_main([state.hashes])
    if not world.is_main:
        return None
    reasons = [answer for answer in answers if isinstance(answer, str)]
    if reasons:
        logger.warning(
            f"The best epoch cannot be validated again: {reasons[0]}. The model has no report, and"
            " its probabilities are not calibrated."
        )
        return None

    results = _join([answer for answer in answers if isinstance(answer, ImageResults)])
    results, temperature = _calibrate(results)
    outcomes, thresholds = engine.plan.task.decide(results.outcomes)
    results = replace(results, outcomes=outcomes)
    evaluation = outcomes.evaluate(len(inputs.categories), thresholds)
    hashes = _hashes_of_images(engine.plan, hashes_of_ranks)
    twins, look_alikes = _find_twins(inputs, hashes, results, evaluation)
    suspects, about = find_suspects(Evidence(inputs, margins, results, evaluation))
    has_energies = len(results.logits) > 0 and engine.plan.task.energies_tell
    return Examination(
        evaluated=EvaluatedImages(inputs.validation, results.indices, results.outcomes),
        evaluation=evaluation,
        unreadable=results.unreadable,
        temperature=temperature,
        thresholds=thresholds,
        twins=twins,
        look_alikes=look_alikes,
        training_hashes=hashes[: len(inputs.training)],
        energies=energies_of(results.logits) if has_energies else np.empty(0),
        suspects=suspects,
        about_suspects=about,
        race_accuracy=inputs.race.accuracy if inputs.race else None,
    )


def _best_results(
    engine: Engine, state: State, batches: Batches, saver: Saver
) -> ImageResults | str:
    """Return this process's results, or why there are none: the others wait for an answer."""
    try:
        if state.best.epoch not in state.results:
            validation_loader = batches.validation(state, is_last=True)
            with progress_bar(len(validation_loader), "Report") as bar:
                for _ in validate_best(engine, state, validation_loader):
                    saver.after_validation_batch()
                    bar.advance()
        return state.results[state.best.epoch]
    except Exception as error:
        return reason_of(error)


def _join(parts: Sequence[ImageResults]) -> ImageResults:
    """Return the results of all processes, by increasing index.

    That is the same order as in `evaluate`, for any number of processes: it breaks ties.
    """
    indices = np.concatenate([part.indices for part in parts])
    outcomes = metrics.join([part.outcomes for part in parts])
    logits = np.concatenate([part.logits for part in parts])
    order = np.argsort(indices)
    return ImageResults(
        indices=indices[order],
        outcomes=outcomes.select(order),
        logits=logits[order] if len(logits) else logits,
        unreadable={index: why for part in parts for index, why in part.unreadable.items()},
    )


def _calibrate(results: ImageResults) -> tuple[ImageResults, calibration.Temperature]:
    """Return the results at the temperature that suits them best, and that temperature."""
    temperature = calibration.fit_temperature(results.logits, results.outcomes)
    paragraph(calibration.describe_temperature(temperature))
    outcomes = results.outcomes
    if temperature.value != 1:
        outcomes = calibration.calibrate(outcomes, results.logits, temperature.value)
    logits = results.logits / temperature.value
    return replace(results, outcomes=outcomes, logits=logits), temperature


def _hashes_of_images(plan: Plan, hashes_of_ranks: Sequence[np.ndarray]) -> np.ndarray:
    """Return (N, 16), uint8: the hashes of the training and then of the validation images.

    A row is zero on the ranks that have not decoded its image, and on all if it has no hash.
    """
    inputs = plan.inputs
    validation_rows = plan.cache.num_training + inputs.validation.rows
    rows = np.concatenate([inputs.training.rows, validation_rows])
    computed = [hashes for hashes in hashes_of_ranks if len(hashes)]
    if not computed:
        return np.zeros((len(rows), NUM_BYTES), np.uint8)
    hashes: np.ndarray = np.maximum.reduce(computed)[rows]
    return hashes


def _find_twins(
    inputs: TrainingInputs,
    hashes: np.ndarray,
    results: ImageResults,
    evaluation: AnyEvaluation,
) -> tuple[Sequence[TwinRow], TrainingLookAlikes]:
    """Return the twins among all images, and what they mean for the accuracy, and log that."""
    twins, is_look_alike = find_twins(
        inputs.training, inputs.validation, inputs.identical.pairs, hashes
    )
    is_other = ~is_look_alike[results.indices]
    look_alikes = TrainingLookAlikes.of(is_look_alike, results.outcomes.is_hit[is_other])
    text = look_alikes.describe(evaluation.accuracy, evaluation.measure)
    # A few of many change nothing, and in tiny images may be chance.
    if is_look_alike.mean() >= WORTH_A_WARNING:
        logger.warning(text)
    elif text:
        paragraph(text)
    return twins, look_alikes
