"""What the validation of the best epoch says about the model that will be published."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.unknown import energies_of
from train_pytorch_model.inputs.perceptual_hash import NUM_BYTES
from train_pytorch_model.loop.batches import Batches
from train_pytorch_model.loop.engine import Engine
from train_pytorch_model.loop.epoch import validate_best
from train_pytorch_model.loop.plan import Plan
from train_pytorch_model.loop.saving import Saver
from train_pytorch_model.loop.state import ImageResults, State
from train_pytorch_model.machine.console import logger, paragraph, progress_bar
from train_pytorch_model.measures import evaluation
from train_pytorch_model.measures.calibration import (
    Temperature,
    calibrate,
    describe,
    fit_temperature,
    softmax,
)
from train_pytorch_model.measures.evaluation import Evaluation, Outcomes
from train_pytorch_model.measures.suspects import (
    SUSPECTS,
    Suspect,
    Suspects,
    suspect_rows,
    suspects_by_margin,
    suspects_by_prediction,
)
from train_pytorch_model.measures.twins import Twins, describe_seen, find_twins
from train_pytorch_model.measures.verdict import is_better_than_guessing
from train_pytorch_model.words.wording import counted, reason_of

TITLE = "Report"
WORTH_A_WARNING = 0.01  # of the validation images


@dataclass(frozen=True)
class Examined:
    """What is known about the model to be published, on the main process."""

    outcomes: Outcomes
    """Of all validation images, in their order, by the model as it is published."""
    evaluation: Evaluation
    """Of these outcomes."""
    indices: np.ndarray
    """(N,), int64: the indices of these images in the given validation dataset."""
    rejected: dict[int, str]
    """Images that could not be read this time: index → reason."""
    temperature: Temperature
    twins: Twins
    accuracy_without_twins: float | None
    """On the validation images that do not look like a training image; None without any."""
    training_hashes: np.ndarray
    """(N, 16), uint8: perceptual hashes of the given training images; zeros for those without."""
    energies: np.ndarray
    """(N,), float64: how unlike the training images the validation images are; (0,) without logits."""
    suspects: Sequence[Suspect]
    """Images whose category is probably wrong, the most suspicious first."""

    @property
    def metrics(self) -> dict[str, float]:
        """What is logged of the published model."""
        seen = int(self.twins.is_seen.sum())
        without = self.accuracy_without_twins
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
    """Examine the best epoch by its validation. Collective; only the main process returns the result.

    It is None, with a warning, if an interrupted run cannot validate that epoch again, and without one if no
    epoch is the best.
    """
    if state.best.epoch == 0:
        return None
    margins = state.margins.reduce(engine.world)
    answers = engine.world.gather_on_main([_best_results(engine, state, batches, saver)])
    hashes_of_all = engine.world.gather_on_main([state.hashes])
    if not engine.world.is_main:
        return None
    results_of_all = [answer for answer in answers if isinstance(answer, ImageResults)]
    if len(results_of_all) < len(answers):
        reason = next(answer for answer in answers if isinstance(answer, str))
        logger.warning(
            f"The best epoch cannot be validated again: {reason}. The model has no report, and its"
            " probabilities are not calibrated."
        )
        return None
    indices = np.concatenate([results.indices for results in results_of_all])
    # The same order as in `evaluate`, for any number of processes: it breaks ties.
    order = np.argsort(indices)
    outcomes = evaluation.join([results.outcomes for results in results_of_all]).select(order)
    logits = np.concatenate([results.logits for results in results_of_all])
    logits = logits[order] if len(logits) else logits
    temperature = fit_temperature(logits, outcomes)
    paragraph(describe(temperature))
    if temperature.value != 1:
        outcomes = calibrate(outcomes, logits, temperature.value)
    evaluated = evaluation.evaluate(outcomes, len(engine.plan.inputs.categories))
    hashes = _hashes_of_images(engine.plan, hashes_of_all)
    inputs = engine.plan.inputs
    suspects = [(inputs.training, suspects_by_margin(*margins))]
    if len(logits):
        found = suspects_by_prediction(outcomes.targets, softmax(logits / temperature.value))
        suspects.append((inputs.validation, replace(found, indices=indices[order][found.indices])))
    twins = find_twins(inputs.training, inputs.validation, inputs.identical.pairs, hashes)
    without = twins.accuracy_without(indices[order], outcomes.target_ranks == 0)
    if text := describe_seen(twins, evaluated.accuracy, without):
        # A few of many change nothing, and in tiny images may be chance.
        (logger.warning if twins.is_seen.mean() >= WORTH_A_WARNING else paragraph)(text)
    return Examined(
        outcomes=outcomes,
        evaluation=evaluated,
        indices=indices[order],
        rejected={index: reason for results in results_of_all for index, reason in results.rejected.items()},
        temperature=temperature,
        twins=twins,
        accuracy_without_twins=without,
        training_hashes=hashes[: len(inputs.training)],
        energies=energies_of(logits / temperature.value) if len(logits) else np.empty(0),
        suspects=_rows_of(suspects) if is_better_than_guessing(evaluated) else [],
    )


def _rows_of(suspects: Sequence[tuple[ImageDirectory, Suspects]]) -> list[Suspect]:
    rows = suspect_rows(suspects)
    if rows:
        paragraph(f"{counted(len(rows), 'image', 'images')} may have a wrong category: see {SUSPECTS}.")
    return rows


def _hashes_of_images(plan: Plan, hashes_of_all: Sequence[np.ndarray]) -> np.ndarray:
    """Join the hashes (rows, 16) that the processes have; return those of the given images (N, 16)."""
    training, validation = plan.inputs.training.rows, plan.cache.num_training + plan.inputs.validation.rows
    rows = np.concatenate([training, validation])
    known = [hashes for hashes in hashes_of_all if len(hashes)]
    return np.maximum.reduce(known)[rows] if known else np.zeros((len(rows), NUM_BYTES), np.uint8)


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
        return reason_of(error)
