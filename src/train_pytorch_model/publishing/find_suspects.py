"""Images whose labels are probably wrong, by what the training and its validation say of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.label_noise import fit_label_noise
from train_pytorch_model.evaluation.likelihood import softmax
from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelOutcomes
from train_pytorch_model.formats.race_record import read_race_arrays
from train_pytorch_model.inputs.opening import TrainingInputs
from train_pytorch_model.machine.console import paragraph
from train_pytorch_model.quality.suspects import (
    SUSPECTS,
    Suspect,
    Suspects,
    about_suspects,
    can_tell,
    suspect_rows,
    suspects_by_label,
    suspects_by_margin,
    suspects_by_prediction,
)
from train_pytorch_model.training.state import ImageResults

TINY = 1e-12  # of a probability, so that it has a logarithm
SUPPOSED = 0.1  # wrong labels: were so many wrong, a model that can tell …
MIN_FOUND = 0.4  # … would find so many of them, …
MIN_NUM_FOUND = 5  # … and at least so many validation images
# Of the images that have margins, a race has predicted at least so many, if its predictions count.
MIN_PREDICTED = 0.9


@dataclass(frozen=True)
class Evidence:
    """What is known about the labels."""

    inputs: TrainingInputs
    # The mean margins of the training images, and the other categories that they prefer.
    margins: tuple[np.ndarray, np.ndarray]
    results: ImageResults  # of the validation images
    evaluation: AnyEvaluation  # of these


def find_suspects(evidence: Evidence) -> tuple[list[Suspect], str]:
    """Return the images whose label is probably wrong, and what to know about them.

    The latter is logged, and empty if there is nothing to say.
    """
    rows, text = _FINDERS[type(evidence.results.outcomes)](evidence)
    if text:
        paragraph(text)
    return rows, text


def _suspects_of_categories(evidence: Evidence) -> tuple[list[Suspect], str]:
    """Return the same of images with one category each."""
    results = evidence.results
    if not len(results.logits):  # too many to keep
        return [], ""
    targets = results.outcomes.targets
    noise = fit_label_noise(results.logits, targets)
    wrong = noise.wrong_probabilities(results.logits, targets)
    held_out = suspects_by_prediction(targets, results.logits, wrong)
    parts = [
        (evidence.inputs.training, _training_suspects(evidence, held_out)),
        (evidence.inputs.validation, replace(held_out, indices=results.indices[held_out.indices])),
    ]
    rows = suspect_rows(parts)
    text = about_suspects(rows)
    found = can_tell(softmax(results.logits), SUPPOSED)
    is_enough = found >= MIN_FOUND and found * SUPPOSED * len(targets) >= MIN_NUM_FOUND
    if not rows and not is_enough:
        images = counted(len(targets), "image", "images")
        text = (
            "Whether categories are wrong cannot be told: among the mistakes of this model,"
            f" {1 - evidence.evaluation.accuracy:.0%} of {images} for validation, wrong labels"
            " would not stand out. A more accurate model, or more images, can tell."
        )
    return rows, text


def _suspects_of_labels(evidence: Evidence) -> tuple[list[Suspect], str]:
    """Return the same of images with any number of categories, of which one is most in doubt.

    A model that does no better than guessing suspects nothing.
    """
    if not evidence.evaluation.is_better_than_guessing:
        return [], ""
    results = evidence.results
    outcomes = results.outcomes
    assert isinstance(outcomes, MultiLabelOutcomes)
    held_out = suspects_by_label(outcomes.targets, outcomes.probabilities)
    in_dataset = replace(held_out, indices=results.indices[held_out.indices])
    rows = suspect_rows(
        [
            (evidence.inputs.training, suspects_by_margin(*evidence.margins, held_out)),
            (evidence.inputs.validation, in_dataset),
        ]
    )
    if not rows:
        return [], ""
    images = counted(len(rows), "image", "images")
    text = f"{images} may lack a category, or have one that is wrong: see {SUSPECTS}."
    return rows, text


def _training_suspects(evidence: Evidence, held_out: Suspects) -> Suspects:
    """Return the suspects among the training images.

    A race's predictions out of fold find more than margins do; but it may have looked at few of the
    images only, and the training at all of them.
    """
    inputs = evidence.inputs
    if inputs.race is None:
        return suspects_by_margin(*evidence.margins, held_out)
    probabilities = read_race_arrays(inputs.model.root).probabilities[: len(inputs.training)]
    known = np.flatnonzero(np.isfinite(probabilities).all(axis=1))
    with_margin = np.flatnonzero(np.isfinite(evidence.margins[0]))
    if len(known) < MIN_PREDICTED * len(with_margin):
        return suspects_by_margin(*evidence.margins, held_out)
    targets = inputs.training.class_indices[known]
    logits = np.log(np.maximum(probabilities[known].astype(np.float64), TINY))
    wrong = fit_label_noise(logits, targets).wrong_probabilities(logits, targets)
    suspects = suspects_by_prediction(targets, logits, wrong)
    return replace(suspects, indices=known[suspects.indices])


_FINDERS: Mapping[type, Callable[[Evidence], tuple[list[Suspect], str]]] = {
    Outcomes: _suspects_of_categories,
    MultiLabelOutcomes: _suspects_of_labels,
}
