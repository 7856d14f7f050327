"""How probable it is that the categories of reviewed images are wrong, and what else is known."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from train_pytorch_model.datasets.grouping import connect
from train_pytorch_model.evaluation.calibration import MIN_IMAGES
from train_pytorch_model.evaluation.label_noise import fit_label_noise
from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.image_classifier.predictions import UnknownError, read_threshold
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.quality.folds import NUM_FOLDS, stratified_folds
from train_pytorch_model.quality.near_duplicates import find_pairs
from train_pytorch_model.quality.review_order import Judged
from train_pytorch_model.quality.solved_classifier import solve
from train_pytorch_model.quality.suspects import best_others, suspects_in
from train_pytorch_model.quality.to_label import MostUncertain, num_candidates
from train_pytorch_model.reviewing.inputs import Predicted, ReviewInputs

MAX_SOLVED = 20_000  # labelled images that are predicted out of fold, in about a minute
STRENGTH = 0.003  # of the solved classifiers
KNOWN_FRACTION = 0.999  # of validation images, which are like the training images
TINY = 1e-12


def judge(
    inputs: ReviewInputs, predicted: Predicted, class_indices: np.ndarray, is_open: np.ndarray
) -> Judged:
    """Return what is known about N images with these class indices, (N,), int64.

    `is_open` (N,), bool, says which ones have not been decided on before.
    """
    names = predicted.names
    categories = inputs.reviewed.categories
    index_of = {comparable(name): index for index, name in enumerate(categories)}
    of_model = [index_of[comparable(name)] for name in inputs.scoring.spec.categories]
    logits = np.full((len(names), len(categories)), np.log(TINY))
    logits[:, of_model] = np.log(np.maximum(predicted.probabilities, TINY))
    labelled = np.flatnonzero(class_indices != UNLABELLED)
    targets = class_indices[labelled]
    alike = find_pairs(predicted.hashes[labelled]).images
    if _can_be_solved(targets):
        groups = connect(len(labelled), alike)
        logits[labelled] = _out_of_fold(
            predicted.features[labelled], targets, groups, len(categories)
        )
    noise = fit_label_noise(logits[labelled], targets)
    wrong = np.zeros(len(names))
    wrong[labelled] = noise.wrong_probabilities(logits[labelled], targets)
    _add_suspects(wrong, inputs, names, class_indices)
    of_label = np.ones(len(names))
    of_label[labelled] = noise.label_probabilities(logits[labelled], targets)
    proposed = logits.argmax(axis=1)
    if len(categories) > 1:
        proposed[labelled] = best_others(logits[labelled], targets)
    is_doubted = np.zeros(len(names), bool)
    is_doubted[labelled] = logits[labelled, proposed[labelled]] > logits[labelled, targets]
    return Judged(
        class_indices=class_indices,
        proposed=proposed,
        wrong=wrong,
        label_probabilities=of_label,
        is_doubted=is_doubted,
        energies=predicted.energies,
        max_energy=_max_energy(inputs.scoring.model.root),
        contradictions=labelled[alike[targets[alike[:, 0]] != targets[alike[:, 1]]]],
        to_label=_to_label(predicted, class_indices, inputs.size),
        is_open=is_open,
    )


def _can_be_solved(targets: np.ndarray) -> bool:
    return MIN_IMAGES <= len(targets) <= MAX_SOLVED and len(np.unique(targets)) > 1


def _out_of_fold(
    features: np.ndarray, targets: np.ndarray, groups: np.ndarray, num_classes: int
) -> np.ndarray:
    """Return logits (N, C) by classifiers that have not learned from an image or its twins.

    What the network says of an image that it was trained on says little about its label.
    """
    folds = stratified_folds(targets, groups, seed=1)
    logits = np.empty((len(targets), num_classes))
    with progress_bar(NUM_FOLDS, "Judging") as bar:
        for fold in np.unique(folds).tolist():
            is_here = folds == fold
            solved = solve(features[~is_here], targets[~is_here], num_classes, STRENGTH)
            logits[is_here] = solved.logits(features[is_here])
            bar.advance()
    return logits


def _add_suspects(
    wrong: np.ndarray, inputs: ReviewInputs, names: Sequence[str], class_indices: np.ndarray
) -> None:
    """Let images count as suspects that training has suspected, with the same category."""
    categories = inputs.reviewed.categories
    try:
        suspects = suspects_in(inputs.scoring.model.root)
    except MalformedFileError as error:
        logger.warning(f"What training has suspected is not used: {error}")
        return
    given = {suspect.file: suspect for suspect in suspects}
    for position, name in enumerate(names):
        suspect = given.get(name)
        class_index = int(class_indices[position])
        if suspect and class_index >= 0 and suspect.given == categories[class_index]:
            wrong[position] = max(wrong[position], suspect.wrong)


def _max_energy(model: Path) -> float:
    """Return above what an image is unlike those of the training; infinite if that is unknown."""
    try:
        return read_threshold(model, KNOWN_FRACTION)
    except UnknownError:
        return float("inf")


def _to_label(predicted: Predicted, class_indices: np.ndarray, size: int) -> list[int]:
    """Return images without a category: the most uncertain ones, each unlike those before."""
    without = np.flatnonzero(class_indices == UNLABELLED)
    uncertain = MostUncertain(num_candidates(size))
    if len(without) and predicted.probabilities.shape[1] > 1:
        uncertain.add(without, predicted.probabilities[without], predicted.features[without])
    return [candidate.index for candidate in uncertain.ranked()]
