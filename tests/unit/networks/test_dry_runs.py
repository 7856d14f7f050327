"""How many images a step needs, from a dry run, and which convolutions are depthwise."""

import copy

import pytest
import torch

from train_pytorch_model.errors import ParameterError
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.networks.batch_norms import is_depthwise
from train_pytorch_model.networks.dry_runs import (
    WithoutMemory,
    count_first_parameters,
    min_local_batch,
)
from train_pytorch_model.networks.frozen_backbone import freeze_backbone


@pytest.mark.parametrize(("side", "least"), [(32, 2), (33, 1), (64, 1)])
def test_a_step_needs_two_images_if_batch_norm_sees_one_pixel(side: int, least: int) -> None:
    network = build("resnet18", False, 3)
    before = copy.deepcopy(network.state_dict())
    assert min_local_batch(network, side, side) == least
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_a_frozen_network_needs_only_one_image() -> None:
    network = build("resnet18", False, 3)
    freeze_backbone(network, "resnet18")
    assert min_local_batch(network, 32, 32) == 1


@pytest.mark.parametrize(
    ("architecture", "share", "first"),
    [
        ("resnet18", 0.0, "conv1.weight"),
        ("resnet18", 0.06, "conv1.weight"),
        ("resnet18", 0.07, "layer1.0.conv1.weight"),  # the first convolution has 6.5 %
        ("resnet18", 0.33, "layer2.0.conv1.weight"),
        ("densenet121", 0.33, "features.denseblock1.denselayer5.conv2.weight"),
        ("vit_b_16", 0.33, "encoder.layers.encoder_layer_3.mlp.3.weight"),
    ],
)
def test_the_first_layers_are_those_with_a_share_of_the_multiplications(
    architecture: str, share: float, first: str
) -> None:
    with WithoutMemory():
        network = build(architecture, False, 1000)
    names = [name for name, _ in network.named_parameters()]
    assert names[count_first_parameters(network, 224, 224, share)] == first


def test_images_too_small_for_the_network_are_refused() -> None:
    network = build("densenet121", False, 2)
    with pytest.raises(
        ParameterError,
        match=r"^Images of 8 x 8 px are too small for a DenseNet \(.*\)\. In init-model, name a"
        r" larger --im",
    ):
        min_local_batch(network, 8, 8)


@pytest.mark.parametrize(
    ("architecture", "expected"),
    [("resnet18", 0), ("resnext50_32x4d", 0), ("mobilenet_v3_small", 11), ("convnext_tiny", 18)],
)
def test_depthwise_convolutions_are_recognised(architecture: str, expected: int) -> None:
    with torch.device("meta"):
        network = build(architecture, False, 3)
    assert sum(map(is_depthwise, network.modules())) == expected
