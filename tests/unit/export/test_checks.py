"""Whether an exported program says what the served model says."""

import numpy as np
import pytest
import torch
from tests.model_directories import HALF
from torch import nn

from train_pytorch_model.export.checks import PAINTED_SIZES, check
from train_pytorch_model.image_classifier.classifier import ImageClassifier
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing

NUM_PAINTED = 3 * len(PAINTED_SIZES)


class Undecided(nn.Module):
    """Both categories are almost equally probable, whatever the image: 0.501 and 0.499."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.tensor([[0.004, 0.0]]).expand(len(images), 2)


@pytest.mark.parametrize(
    ("answer", "same_label", "close_calls", "is_as_served"),
    [
        pytest.param([0.501, 0.499], NUM_PAINTED, 0, True, id="the same"),
        pytest.param([0.499, 0.501], 0, NUM_PAINTED, True, id="close calls"),
        pytest.param([0.45, 0.55], 0, 0, False, id="other labels"),
    ],
)
def test_close_calls_may_go_the_other_way(
    answer: list[float], same_label: int, close_calls: int, is_as_served: bool
) -> None:
    spec = ClassifierSpec("resnet18", False, ("a", "b"), Framing(32, 32, 1.0), HALF, HALF)
    classifier = ImageClassifier(spec, Undecided(), torch.device("cpu"))
    found = check(lambda _: np.array([answer]), classifier, "tensor", [])
    assert (found.images, found.same_label) == (NUM_PAINTED, same_label)
    assert found.close_calls == close_calls
    assert found.predicts_as_served is is_as_served
    assert ("24 close calls" in str(found)) is (close_calls > 0)
