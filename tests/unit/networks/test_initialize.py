"""Initialization from scratch: filters before a batch norm get a norm at which they train well."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from train_pytorch_model.image_classifier.architectures import FAMILY_OF, build
from train_pytorch_model.networks.initialize import initialize_from_scratch, rescale_filters

EPOCHS, IMAGES = 5, 20  # images per category


def filter_norms(convolution: nn.Module) -> torch.Tensor:
    assert isinstance(convolution, nn.Conv2d)
    found: torch.Tensor = torch.linalg.vector_norm(convolution.weight.detach(), dim=(1, 2, 3))
    return found


@pytest.mark.parametrize(
    ("learning_rate", "batch_size", "length"),
    [
        (0.001, 16, 0.2),
        (0.004, 64, 0.2),
        (0.01, 16, 0.4**0.5),
        (0.1, 16, 2.0),
        (0.064, 640, 0.064**0.5),
        (0.064, 4096, 0.064**0.5),
        (1e-6, 16, 0.1),
    ],
)
def test_filter_norms_follow_the_root_of_the_learning_rate_per_image(
    learning_rate: float, batch_size: int, length: float
) -> None:
    network = build("resnet18", False, 3)
    initialize_from_scratch(network, "resnet18", EPOCHS, IMAGES, learning_rate, batch_size)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            assert torch.allclose(filter_norms(layer), torch.tensor(length))


@pytest.mark.parametrize("is_training", [True, False])
@pytest.mark.parametrize("architecture", ["resnet18", "densenet121", "mobilenet_v3_small"])
def test_rescaling_filters_does_not_change_the_outputs(
    architecture: str, is_training: bool
) -> None:
    torch.manual_seed(1)
    network = build(architecture, False, 3).double().train(is_training)
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            module.eps = 1e-30  # otherwise eps would be the only difference
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    rescaled = copy.deepcopy(network)
    rescale_filters(rescaled, 0.2)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(rescaled(images), network(images), rtol=1e-6, atol=1e-9)
    changed = [
        not torch.equal(a, b)
        for a, b in zip(network.parameters(), rescaled.parameters(), strict=True)
    ]
    assert sum(changed) >= 20


@pytest.mark.parametrize("architecture", ["vit_b_32", "convnext_tiny"])
def test_a_network_without_batch_norms_is_unchanged(architecture: str) -> None:
    network = build(architecture, False, 3)
    before = copy.deepcopy(network.state_dict())
    rescale_filters(network, 0.2)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_zero_filter_stays_zero() -> None:
    first, last = nn.Conv2d(3, 2, 3), nn.Conv2d(2, 2, 1)
    with torch.no_grad():
        first.weight[0] = 0.0
    before = last.weight.detach().clone()
    rescale_filters(nn.Sequential(first, nn.BatchNorm2d(2), last, nn.ReLU()), 0.2)
    assert filter_norms(first).tolist() == pytest.approx([0.0, 0.2])
    assert torch.equal(last.weight, before)  # no batch norm follows


@pytest.mark.parametrize(
    ("architecture", "length"),
    [
        ("resnet18", 0.17),
        ("resnet50", 0.085),
        ("densenet121", 0.17 / 2**0.5),
        ("regnet_x_400mf", 0.17),
        ("efficientnet_b0", 3**-0.5),
        ("mobilenet_v3_small", 3**-0.5),
    ],
)
def test_the_head_keeps_its_random_directions_at_a_fixed_norm(
    architecture: str, length: float
) -> None:
    network = build(architecture, False, 100)
    head = network.get_submodule(FAMILY_OF[architecture].head)
    before = head.get_parameter("weight").detach().clone()
    initialize_from_scratch(network, architecture, EPOCHS, IMAGES, 0.001, 16)
    weight = head.get_parameter("weight").detach()
    assert float(torch.linalg.vector_norm(weight, dim=1).mean()) == pytest.approx(length, rel=0.02)
    torch.testing.assert_close(
        weight / weight.norm(), before / before.norm()
    )  # the same directions
    assert not head.get_parameter("bias").any()


@pytest.mark.parametrize(
    ("epochs", "images", "is_zero"),
    [
        (1, 0.4, False),
        (11, 72.5, False),
        (11, 73, True),
        (12, 0.4, True),
        (1, 800, True),
        (90, 1e4, True),
    ],
)
def test_the_head_starts_at_zero_in_long_training(
    epochs: int, images: float, is_zero: bool
) -> None:
    network = build("resnet18", False, 3).train()
    initialize_from_scratch(network, "resnet18", epochs, images, 0.001, 16)
    with torch.no_grad():
        assert (not network(torch.randn(2, 3, 64, 64)).any()) == is_zero


def test_all_categories_are_about_equally_likely_at_first() -> None:
    network = build("resnet18", False, 10).train()
    initialize_from_scratch(network, "resnet18", EPOCHS, IMAGES, 0.001, 16)
    with torch.no_grad():
        logits = network(torch.randn(4, 3, 64, 64))
    assert logits.any()
    assert logits.abs().max() < 1


def test_hidden_linear_layers_get_the_standard_deviation_for_relu() -> None:
    network = build("mobilenet_v3_small", False, 100)
    hidden, _head = [module for module in network.modules() if isinstance(module, nn.Linear)]
    before = hidden.weight.detach().clone()
    initialize_from_scratch(network, "mobilenet_v3_small", EPOCHS, IMAGES, 0.001, 16)
    weight = hidden.weight.detach()
    assert float(weight.std()) == pytest.approx((2 / hidden.in_features) ** 0.5)
    torch.testing.assert_close(weight / weight.norm(), before / before.norm())


def test_a_zero_head_stays_zero() -> None:
    network = build("vit_b_32", False, 3)  # torchvision initializes this head with zeros
    initialize_from_scratch(network, "vit_b_32", EPOCHS, IMAGES, 0.001, 16)
    assert not network.get_submodule(FAMILY_OF["vit_b_32"].head).get_parameter("weight").any()
