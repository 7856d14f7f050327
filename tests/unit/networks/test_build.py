"""Networks: trainable parameters, running statistics, and the table of architectures."""

import copy
from typing import Any

import pytest
import torch
import torchvision.models
from torch import nn

from train_pytorch_model.image_classifier.architectures import FAMILIES, FAMILY_OF, build
from train_pytorch_model.networks.batch_norms import raise_momentum, set_training_mode
from train_pytorch_model.networks.dry_runs import WithoutMemory, min_local_batch
from train_pytorch_model.networks.frozen_backbone import freeze_backbone


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def test_with_a_frozen_backbone_only_the_head_is_trained_and_statistics_are_kept() -> None:
    network = build("resnet18", False, 3)
    freeze_backbone(network, "resnet18")
    set_training_mode(network)
    assert [name for name, p in network.named_parameters() if p.requires_grad] == [
        "fc.weight",
        "fc.bias",
    ]
    before = copy.deepcopy(network.state_dict())
    network(torch.randn(4, 3, 32, 32)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_without_freezing_running_statistics_follow_the_data() -> None:
    network = build("resnet18", False, 3)
    network.eval()
    set_training_mode(network)
    before = copy.deepcopy(network.state_dict())
    network(torch.randn(4, 3, 32, 32))
    after = network.state_dict()
    assert not torch.equal(after["bn1.running_mean"], before["bn1.running_mean"])
    assert after["bn1.num_batches_tracked"] == 1


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.class_name)
def test_every_family_has_the_head_that_the_table_names(family: Any) -> None:
    # Without memory where that works: RegNet reads the values of tensors while it is built.
    with torch.device("cpu" if family.class_name == "RegNet" else "meta"):
        network = build(family.architectures[0], False, 7)
    head = network.get_submodule(family.head)
    assert isinstance(head, nn.Linear)
    assert head.out_features == 7
    assert [name for name, _ in network.named_parameters()][-1] == f"{family.head}.bias"


def test_every_architecture_has_one_family_and_is_known_to_torchvision() -> None:
    assert set(FAMILY_OF) <= set(torchvision.models.list_models(module=torchvision.models))
    assert len(FAMILY_OF) == sum(len(family.architectures) for family in FAMILIES)


def test_the_option_reaches_the_network() -> None:
    torch.manual_seed(0)
    network = build("resnet18", True, 2)
    assert not network.get_parameter("layer1.0.bn2.weight").any()
    assert build("resnet18", False, 2).get_parameter("layer1.0.bn2.weight").all()


@pytest.mark.parametrize(
    ("own", "steps_per_epoch", "momentum"),
    [
        (0.1, 1000, 0.1),
        (0.1, 10, 0.15),
        (0.1, 1, 0.3),
        (0.01, 1000, 0.01),
        (0.01, 50, 0.03),
        (0.4, 1, 0.4),
        (None, 1, None),  # the cumulative average of all steps
    ],
)
def test_short_epochs_raise_the_momentum_of_running_statistics(
    own: float | None, steps_per_epoch: int, momentum: float | None
) -> None:
    norm = nn.BatchNorm2d(3, momentum=own)
    raise_momentum(nn.Sequential(nn.Conv2d(3, 3, 1), norm), steps_per_epoch)
    assert norm.momentum == momentum


def test_depthwise_convolutions_double_the_momentum() -> None:
    norm = nn.BatchNorm2d(3)
    raise_momentum(nn.Sequential(nn.Conv2d(3, 3, 1, groups=3), norm), 20)
    assert norm.momentum == 0.15


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.class_name)
def test_shapes_of_every_family_are_known_without_values_or_random_numbers(family: Any) -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    with WithoutMemory():
        network = build(family.architectures[0], False, 3)
    assert all(parameter.is_meta for parameter in network.parameters())
    side = family.image_size or 64
    assert min_local_batch(network, side, side) == 1
    assert torch.equal(torch.get_rng_state(), before)
