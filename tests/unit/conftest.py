"""Shared by the unit tests: a Hypothesis profile without deadlines, a small network."""

from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from torch import Tensor, nn

# Tests run in parallel on machines of any speed, so the time of an example means nothing.
settings.register_profile("unit", deadline=None)
settings.load_profile("unit")


@pytest.fixture(scope="session")
def resnet18() -> "nn.Module":
    """A ResNet-18 for three categories; read-only."""
    import torch

    from train_pytorch_model.image_classifier.architectures import build

    torch.manual_seed(3)
    return build("resnet18", False, 3)


@pytest.fixture
def state(resnet18: "nn.Module") -> "dict[str, Tensor]":
    """The state dict of `resnet18`, in a new dict that the test may change."""
    return dict(resnet18.state_dict())
