"""The outcomes of predictions, as their model answers them."""

from collections.abc import Callable, Mapping

import numpy as np

from train_pytorch_model.evaluation.metrics import Outcomes, outcomes_of
from train_pytorch_model.evaluation.multi_label import MultiLabelOutcomes
from train_pytorch_model.image_classifier.answers import Answers, AnyCategories, OneCategory

AnyOutcomes = Outcomes | MultiLabelOutcomes


def outcomes_by(answers: Answers, targets: np.ndarray, probabilities: np.ndarray) -> AnyOutcomes:
    """Return the outcomes of N images with probabilities (N, C).

    Targets are (N,), int64; or (N, C), float32, of a model that answers any number of categories.
    """
    return _MAKERS[type(answers)](targets, probabilities, answers)


def _of_one(targets: np.ndarray, probabilities: np.ndarray, _: Answers) -> AnyOutcomes:
    return outcomes_of(targets, probabilities)


def _of_any(targets: np.ndarray, probabilities: np.ndarray, answers: Answers) -> AnyOutcomes:
    return MultiLabelOutcomes(targets.astype(bool), probabilities, answers.marks(probabilities))


_MAKERS: Mapping[type[Answers], Callable[[np.ndarray, np.ndarray, Answers], AnyOutcomes]] = {
    OneCategory: _of_one,
    AnyCategories: _of_any,
}
