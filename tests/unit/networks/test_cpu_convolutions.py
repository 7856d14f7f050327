"""Networks on a CPU: which weights meet nothing but padding, and what is computed in float32."""

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from train_pytorch_model.config.recipe import MIN_EARLY_SIZE
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.cpu_convolutions import (
    adapt_to_cpu,
    compute_depthwise_in_float32,
    keep_unseen_weights,
)


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


class OneConvolution(nn.Module):
    """A network of a single convolution."""

    def __init__(self, size: int, stride: int, padding: tuple[int, int], dilation: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 2, size, stride, padding, dilation)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.convolution(images)
        return made


def gradient_of_garbage(convolution: nn.Conv2d) -> torch.Tensor:
    """The gradient of the weight when the incoming gradient is NaN everywhere."""
    convolution.weight.grad = None
    (convolution.weight * torch.nan).sum().backward()  # type: ignore[no-untyped-call]
    assert convolution.weight.grad is not None
    return convolution.weight.grad


lengths = st.integers(1, 8)
strides = st.integers(2, 4)


@given(
    lengths,
    lengths,
    st.integers(1, 7),
    strides,
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    strides,
)
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
def test_images_of_the_smallest_early_size_meet_all_weights(
    name: str, side: int, meet_all: bool
) -> None:
    network = build(name, False, 3)
    keep_unseen_weights(network, side, side)
    assert any(parameter._backward_hooks for parameter in network.parameters()) is not meet_all


def test_convolutions_without_a_stride_are_unchanged() -> None:
    network = OneConvolution(3, 1, (1, 1), 1)
    keep_unseen_weights(network, 1, 1)
    assert gradient_of_garbage(network.convolution).isnan().all()


@pytest.mark.parametrize(("side", "kept"), [(33, 0), (32, 1), (16, 2), (8, 3)])
def test_a_resnet_has_unseen_weights_from_32_pixels_down(side: int, kept: int) -> None:
    network = build("resnet18", False, 3)
    keep_unseen_weights(network, side, side)
    strided = [m for m in network.modules() if isinstance(m, nn.Conv2d) and max(m.stride) > 1]
    changed = [m for m in strided if not gradient_of_garbage(m).isnan().all()]
    assert len(changed) == kept


def test_only_depthwise_convolutions_compute_in_float32() -> None:
    network = build("mobilenet_v3_small", False, 3)
    names = list(network.state_dict())
    adapt_to_cpu(network, 64, 64)
    assert list(network.state_dict()) == names
    computed: dict[bool, set[torch.dtype]] = {False: set(), True: set()}
    returned: set[torch.dtype] = set()

    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(lambda _, __, made: returned.add(made.dtype))
    convolve = nn.Conv2d._conv_forward

    def noted(
        self: nn.Conv2d, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        made: torch.Tensor = convolve(self, input, weight, bias)
        computed[is_depthwise(self)].add(made.dtype)
        return made

    with pytest.MonkeyPatch.context() as patch, torch.autocast("cpu", torch.bfloat16):
        patch.setattr(nn.Conv2d, "_conv_forward", noted)
        network(torch.rand(2, 3, 64, 64))
    assert computed == {False: {torch.bfloat16}, True: {torch.float32}}
    assert returned == {torch.bfloat16}  # so that the following layers stay as fast


def test_a_depthwise_convolution_has_the_gradients_of_float32() -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 4, 3, padding=1, groups=4)
    adapted = copy.deepcopy(plain)
    compute_depthwise_in_float32(adapted)
    images = torch.randn(2, 4, 8, 8).bfloat16()
    gradient = torch.randn(2, 4, 8, 8).bfloat16()
    plain(images.float()).backward(gradient.float())
    with torch.autocast("cpu", torch.bfloat16):
        adapted(images).backward(gradient)
    torch.testing.assert_close(adapted.weight.grad, plain.weight.grad)
    torch.testing.assert_close(adapted(images.float()), plain(images.float()))
