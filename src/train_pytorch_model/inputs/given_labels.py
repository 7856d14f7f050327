"""The labels that images to be scored have, beside the answers of a model."""

from collections.abc import Collection

import numpy as np

from train_pytorch_model.formats.listing import UNLABELLED, comparable
from train_pytorch_model.inputs.scoring import ScoringInputs, is_same_task


class GivenLabels:
    """The labels of the N images of a data set, of any categories; there may be none."""

    def __init__(self, inputs: ScoringInputs) -> None:
        self._images = inputs.images
        self._answers = inputs.spec.answers
        categories = inputs.spec.categories
        index_of = {comparable(name): index for index, name in enumerate(categories)}
        # By category of the data set: the class index in the model, or `UNLABELLED`.
        self._model_indices = np.array(
            [index_of.get(comparable(name), UNLABELLED) for name in inputs.images.categories],
            dtype=np.int64,
        )
        # (N,), bool: whether the model could give the image its label; not if only one of both
        # speaks of lists of categories.
        self.are_known = np.zeros(len(inputs.images), dtype=bool)
        if is_same_task(inputs.model, inputs.images):
            is_known = self._model_indices != UNLABELLED
            self.are_known = self._images.labels.are_known(self._images.class_indices, is_known)

    def count_correct(self, indices: np.ndarray, probabilities: np.ndarray) -> int:
        """Return how many of the images at `indices` (B,) are answered with their labels.

        Their probabilities are (B, C), of the categories of the model.
        """
        are_known = self.are_known[indices]
        answered = self._answers.marks(probabilities[are_known])
        given = np.zeros_like(answered)
        rows, members = np.nonzero(self._images.marks(indices[are_known]))
        given[rows, self._model_indices[members]] = True
        return int((given == answered).all(axis=1).sum())

    def unknown_categories(self, unreadable: Collection[int]) -> dict[str, int]:
        """Return how many readable images have each category that the model does not know."""
        numbers = np.delete(self._images.class_indices, list(unreadable))
        images = self._images
        counts = images.labels.counts(numbers[numbers != UNLABELLED], len(images.categories))
        is_foreign = (self._model_indices == UNLABELLED) & (counts > 0)
        return {
            images.categories[index]: int(counts[index]) for index in np.flatnonzero(is_foreign)
        }
