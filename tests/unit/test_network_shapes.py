"""What dry runs tell: how many images a step needs, and which weights never meet one."""

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.models import freeze_backbone
from train_pytorch_model.networks.shapes import keep_unseen_weights, min_share
from train_pytorch_model.recipe import MIN_EARLY_SIZE


@pytest.mark.parametrize(("side", "least"), [(32, 2), (33, 1), (64, 1)])
def test_where_batch_norm_meets_one_pixel_a_step_takes_two_images(side: int, least: int) -> None:
    network = build("resnet18", False, 3)
    before = copy.deepcopy(network.state_dict())
    assert min_share(network, side, side) == least
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_frozen_network_takes_one_image() -> None:
    network = build("resnet18", False, 3)
    freeze_backbone(network, "resnet18")
    assert min_share(network, 32, 32) == 1


def test_images_too_small_for_the_network_are_named() -> None:
    network = build("densenet121", False, 2)
    with pytest.raises(
        ParameterError,
        match=r"^Images of 8 x 8 px are too small for a DenseNet \(.*\)\. In init-model, name a larger --im",
    ):
        min_share(network, 8, 8)


class OneConvolution(nn.Module):
    """Of images of one size."""

    def __init__(self, size: int, stride: int, padding: tuple[int, int], dilation: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 2, size, stride, padding, dilation)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.convolution(images)
        return made


def gradient_of_garbage(convolution: nn.Conv2d) -> torch.Tensor:
    """What arrives of a gradient that is NaN wherever it may be."""
    convolution.weight.grad = None
    (convolution.weight * torch.nan).sum().backward()  # type: ignore[no-untyped-call]
    assert convolution.weight.grad is not None
    return convolution.weight.grad


lengths = st.integers(1, 8)
strides = st.integers(2, 4)


@given(lengths, lengths, st.integers(1, 7), strides, st.tuples(st.integers(0, 3), st.integers(0, 3)), strides)
def test_the_gradient_is_zero_exactly_where_a_weight_meets_only_padding(
    height: int, width: int, size: int, stride: int, padding: tuple[int, int], dilation: int
) -> None:
    assume(min(height + 2 * padding[0], width + 2 * padding[1]) > dilation * (size - 1))
    network = OneConvolution(size, stride, padding, dilation)
    network(torch.ones(1, 3, height, width)).sum().backward()
    assert network.convolution.weight.grad is not None
    meets_an_image = network.convolution.weight.grad.ne(0)
    keep_unseen_weights(network, height, width)
    assert torch.equal(gradient_of_garbage(network.convolution).isnan(), meets_an_image)


@pytest.mark.parametrize(
    ("name", "side", "meet_all"),
    [
        ("resnet18", 16, False),
        ("resnet18", MIN_EARLY_SIZE, True),
        ("densenet121", MIN_EARLY_SIZE, True),
        ("mobilenet_v3_small", MIN_EARLY_SIZE, True),
        ("efficientnet_b0", MIN_EARLY_SIZE, True),
        ("regnet_y_400mf", MIN_EARLY_SIZE, True),
    ],
)
def test_the_smallest_early_images_meet_all_weights(name: str, side: int, meet_all: bool) -> None:
    network = build(name, False, 3)
    keep_unseen_weights(network, side, side)
    assert any(parameter._backward_hooks for parameter in network.parameters()) is not meet_all


def test_without_a_stride_nothing_is_done() -> None:
    network = OneConvolution(3, 1, (1, 1), 1)
    keep_unseen_weights(network, 1, 1)
    assert gradient_of_garbage(network.convolution).isnan().all()


@pytest.mark.parametrize(("side", "kept"), [(33, 0), (32, 1), (16, 2), (8, 3)])
def test_a_resnet_has_such_weights_from_32_pixels_down(side: int, kept: int) -> None:
    network = build("resnet18", False, 3)
    keep_unseen_weights(network, side, side)
    strided = [m for m in network.modules() if isinstance(m, nn.Conv2d) and max(m.stride) > 1]
    changed = [m for m in strided if not gradient_of_garbage(m).isnan().all()]
    assert len(changed) == kept
