"""What a model answers, by the probabilities of its categories."""

import numpy as np
import torch
from torch import nn

from train_pytorch_model.image_classifier.answers import AnyCategories, OneCategory
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing

PROBABILITIES = np.array([[0.6, 0.6, 0.1], [0.1, 0.2, 0.3], [0.4, 0.0, 0.9]])
NAMES = ("a", "b", "c")
HALF = (0.5, 0.5, 0.5)


def test_one_category_is_the_most_probable_and_of_equal_ones_the_first() -> None:
    assert OneCategory().texts(PROBABILITIES, NAMES) == ["a", "c", "c"]
    assert OneCategory().labels(PROBABILITIES, NAMES) == ["a", "c", "c"]


def test_any_categories_are_those_that_reach_their_thresholds() -> None:
    answers = AnyCategories((0.4, 0.6, 0.5))
    assert answers.texts(PROBABILITIES, NAMES) == ["a; b", "", "a; c"]
    assert answers.labels(PROBABILITIES, NAMES) == [["a", "b"], [], ["a", "c"]]
    assert answers.metadata() == {"task": "multi-label", "thresholds": "[0.4, 0.6, 0.5]"}


def test_thresholds_make_probabilities_of_each_category_by_itself() -> None:
    spec = ClassifierSpec("", False, NAMES, Framing(4, 4, 1.0), HALF, HALF, (0.5, 0.4, 0.3))
    assert ClassifierSpec.from_mapping(spec.as_mapping()) == spec

    class Logits(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return torch.tensor([[0.0, 1.0, -1.0]]).repeat(len(images), 1)

    classifier = ImageClassifier(spec, Logits(), torch.device("cpu"))
    probabilities, _ = classifier.predict(torch.zeros(2, 4, 4, 3, dtype=torch.uint8))
    expected = torch.tensor([0.0, 1.0, -1.0]).double().sigmoid().numpy()
    np.testing.assert_allclose(probabilities, np.stack([expected] * 2))
