"""Convolutions of small maps: the same values and gradients, zeros where no pixel is met."""

import copy

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from train_pytorch_model.config.recipe import MIN_EARLY_SIZE
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks import small_maps
from train_pytorch_model.networks.dry_runs import dry_run
from train_pytorch_model.networks.meetings import meeting_of
from train_pytorch_model.networks.small_maps import MatrixProduct, SmallMapConv2d


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """The shapes of the inputs that are computed as matrix products."""
    shapes = []
    apply = MatrixProduct.apply

    def noted(images: Tensor, *others: object) -> object:
        shapes.append(images.shape)
        return apply(images, *others)

    monkeypatch.setattr(MatrixProduct, "apply", noted)
    return shapes


def adapted(convolution: nn.Conv2d) -> nn.Conv2d:
    made = copy.deepcopy(convolution)
    made.__class__ = SmallMapConv2d
    return made


def computed(convolution: nn.Module, images: Tensor) -> tuple[Tensor, ...]:
    """The output, and the gradients of images, weight and bias for some gradient of the output."""
    images = images.clone().requires_grad_()
    output = convolution(images)
    generator = torch.Generator().manual_seed(1)
    gradient = torch.randn(output.shape, generator=generator, dtype=output.dtype)
    sources = [images, *convolution.parameters()]
    return output, *torch.autograd.grad(output, sources, gradient)


lengths = st.integers(1, 5)
sizes = st.tuples(st.integers(1, 7), st.integers(1, 5))
small = st.tuples(st.integers(1, 3), st.integers(1, 3))
paddings = st.tuples(st.integers(0, 3), st.integers(0, 3))


@given(lengths, lengths, sizes, small, paddings, small, st.sampled_from([1, 2]), st.booleans())
def test_values_and_gradients_are_those_of_pytorch(
    height: int,
    width: int,
    size: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
    has_bias: bool,
) -> None:
    fits = [
        length + 2 * pad > spread * (kernel - 1)
        for length, pad, spread, kernel in zip(
            (height, width), padding, dilation, size, strict=True
        )
    ]
    assume(all(fits))
    torch.manual_seed(0)
    plain = nn.Conv2d(4, 6, size, stride, padding, dilation, groups, has_bias).double()
    plain.to(memory_format=torch.channels_last)
    images = torch.randn(3, 4, height, width, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_maps, "MIN_WEIGHTS", 1)
        found = computed(adapted(plain), images)
    expected = computed(plain, images)
    torch.testing.assert_close(found, expected)
    meets_no_pixel = expected[2] == 0
    assert not found[2][meets_no_pixel].any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2])
def test_gradients_of_weights_that_meet_no_pixel_are_zeros(dtype: torch.dtype, groups: int) -> None:
    """oneDNN leaves those of bfloat16 uninitialized."""
    convolution = adapted(nn.Conv2d(64, 64, 3, stride=2, padding=1, groups=groups))
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
        output = convolution(torch.randn(4, 64, 1, 1))
    assert output.dtype == dtype
    output.float().square().sum().backward()
    gradient = convolution.weight.grad
    assert gradient is not None
    assert gradient.dtype == torch.float32
    assert gradient[:, :, 1, 1].all()
    gradient[:, :, 1, 1] = 0
    assert not gradient.any()


def test_larger_maps_are_computed_by_pytorch_bit_for_bit(products: list[torch.Size]) -> None:
    torch.manual_seed(0)
    plain = nn.Conv2d(8, 8, 3, padding=1)
    images = torch.randn(2, 8, 4, 4)
    pairs = zip(computed(plain, images), computed(adapted(plain), images), strict=True)
    assert all(torch.equal(expected, found) for expected, found in pairs)
    assert not products


@pytest.mark.parametrize(("side", "num_products"), [(224, 0), (96, 0), (64, 5), (32, 10)])
def test_convolutions_of_small_maps_with_many_weights_are_products(
    products: list[torch.Size], side: int, num_products: int
) -> None:
    network = build("resnet18", False, 3)
    for module in network.modules():
        if type(module) is nn.Conv2d:
            module.__class__ = SmallMapConv2d
    dry_run(network, 2, side, side)
    assert len(products) == num_products


def test_no_images_have_an_output_and_gradients_without_images() -> None:
    convolution = adapted(nn.Conv2d(8, 8, 3, padding=1))
    output, of_images, of_weight, of_bias = computed(convolution, torch.zeros(0, 8, 1, 1))
    assert (output.shape, of_images.shape) == ((0, 8, 1, 1), (0, 8, 1, 1))
    assert not of_weight.any()
    assert not of_bias.any()


def test_images_that_are_smaller_than_a_filter_are_refused_by_pytorch() -> None:
    with pytest.raises(RuntimeError, match="Kernel size can't be greater than actual input size"):
        adapted(nn.Conv2d(3, 4, 5))(torch.zeros(2, 3, 2, 2))


def test_frozen_weights_need_no_gradients() -> None:
    convolution = adapted(nn.Conv2d(8, 8, 3, padding=1)).requires_grad_(False)
    images = torch.randn(2, 8, 1, 1, requires_grad=True)
    convolution(images).sum().backward()
    assert images.grad is not None
    assert convolution.weight.grad is None


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
    are_met = []

    def note(convolution: nn.Module, inputs: tuple[Tensor]) -> None:
        assert isinstance(convolution, nn.Conv2d)
        size = (*inputs[0].shape[-2:], convolution.kernel_size, convolution.stride)
        assert isinstance(convolution.padding, tuple)
        are_met.append(meeting_of(*size, convolution.padding, convolution.dilation).is_of_all)

    for module in network.modules():
        if isinstance(module, nn.Conv2d) and max(module.stride) > 1:
            module.register_forward_pre_hook(note)
    dry_run(network, 2, side, side)
    assert all(are_met) is meet_all


def test_an_activation_in_place_may_follow_a_product(products: list[torch.Size]) -> None:
    convolution = adapted(nn.Conv2d(8, 16, 1))
    images = torch.randn(2, 8, 1, 1)
    expected = computed(nn.Sequential(convolution, nn.SiLU()), images)
    for one, other in zip(
        computed(nn.Sequential(convolution, nn.SiLU(inplace=True)), images), expected, strict=True
    ):
        assert torch.equal(one, other)
    assert len(products) == 2
