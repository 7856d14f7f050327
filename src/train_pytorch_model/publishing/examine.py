"""What the validation of the best epoch says about the model that will be published, and the report
on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from train_pytorch_model.config.wording import counted, reason_of
from train_pytorch_model.evaluation import calibration, metrics
from train_pytorch_model.evaluation.metrics import Evaluation, Outcomes
from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.image_classifier.predictions import energies_of
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.machine.console import logger, paragraph, progress_bar
from train_pytorch_model.quality.perceptual_hash import NUM_BYTES
from train_pytorch_model.quality.suspects import (
    SUSPECTS,
    Suspect,
    suspect_rows,
    suspects_by_margin,
    suspects_by_prediction,
)
from train_pytorch_model.quality.training_look_alikes import TrainingLookAlikes
from train_pytorch_model.quality.twins import TWINS, TwinRow, find_twins
from train_pytorch_model.training.batches import Batches
from train_pytorch_model.training.engine import Engine
from train_pytorch_model.training.epoch import validate_best
from train_pytorch_model.training.saver import Saver
from train_pytorch_model.training.state import ImageResults, State

WORTH_A_WARNING = 0.01  # of the validation images


@dataclass(frozen=True)
class Examination:
    """What is known about the model to be published, on the main process."""

    outcomes: Outcomes  # of all validation images, in their order, by the model as it is published
    evaluation: Evaluation  # of these outcomes
    indices: np.ndarray  # (N,), int64: the indices of these images in the given validation dataset
    unreadable: dict[int, str]  # images that could not be read this time: index → reason
    temperature: calibration.Temperature
    twins: Sequence[TwinRow]
    familiar: TrainingLookAlikes  # validation images that look like training images
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


def examine(engine: Engine, state: State, batches: Batches, saver: Saver) -> Examination | None:
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
    outcomes = metrics.join([each.outcomes for each in results]).select(order)
    logits = np.concatenate([each.logits for each in results])
    logits = logits[order] if len(logits) else logits
    temperature = calibration.fit_temperature(logits, outcomes)
    paragraph(calibration.describe_temperature(temperature))
    if temperature.value != 1:
        outcomes = calibration.calibrate(outcomes, logits, temperature.value)
    scaled = logits / temperature.value
    evaluated = metrics.evaluate(outcomes, len(inputs.categories))
    is_better = evaluated.is_better_than_guessing
    rows = np.concatenate([inputs.training.rows, cache.num_training + inputs.validation.rows])
    known = [hashes for hashes in hashes_of_all if len(hashes)]
    hashes = np.maximum.reduce(known)[rows] if known else np.zeros((len(rows), NUM_BYTES), np.uint8)
    twins, seen = find_twins(inputs.training, inputs.validation, inputs.identical.pairs, hashes)
    familiar = TrainingLookAlikes.of(seen, outcomes.target_ranks[~seen[indices]] == 0)
    if text := familiar.describe(evaluated.accuracy):
        # A few of many change nothing, and in tiny images may be chance.
        (logger.warning if seen.mean() >= WORTH_A_WARNING else paragraph)(text)
    return Examination(
        outcomes=outcomes,
        evaluation=evaluated,
        indices=indices,
        unreadable={index: reason for each in results for index, reason in each.unreadable.items()},
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
    parts = [(inputs.training, suspects_by_margin(*margins))]
    if len(logits):
        found = suspects_by_prediction(outcomes.targets, calibration.softmax(logits))
        parts.append((inputs.validation, replace(found, indices=indices[found.indices])))
    suspects = suspect_rows(parts)
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
            validation_loader = batches.validation(state, is_last=True)
            with progress_bar(len(validation_loader), "Report") as bar:
                for _ in validate_best(engine, state, validation_loader):
                    saver.after_validation_batch()
                    bar.advance()
        return state.results[state.best.epoch]
    except Exception as error:
        return reason_of(error)
