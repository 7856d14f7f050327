"""Learning rate and weight decay of each parameter."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.recipes import decided_recipe
from tests.trainings import PLAIN
from torch import Tensor, nn
from torch.optim import Optimizer

from train_pytorch_model.data.batch import Batch
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.architectures import FAMILY_OF, build
from train_pytorch_model.training.metrics import Sums
from train_pytorch_model.training.optimizer import (
    choose_optimizer,
    make_optimizer,
    set_learning_rate,
)
from train_pytorch_model.training.precision import choose_precision
from train_pytorch_model.training.step import TrainStep

CPU = torch.device("cpu")


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v3_small", "vit_b_16"])
def test_only_the_head_has_a_higher_learning_rate(architecture: str) -> None:
    with torch.device("meta"):
        network = build(architecture, False, 3)
    head = network.get_submodule(FAMILY_OF[architecture].head)
    optimizer = make_optimizer(network, dict.fromkeys(head.parameters(), 7.0))
    found = {
        parameter: (group["lr_factor"], group["weight_decay"])
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    assert found == {
        parameter: (
            7.0 if parameter in set(head.parameters()) else 1.0,
            1e-4 if parameter.ndim > 1 else 0.0,
        )
        for parameter in network.parameters()
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(found)


@pytest.mark.parametrize(
    ("architecture", "entries", "is_trained", "expected"),
    [
        ("resnet18", {}, False, "SGD (the network has batch norms)"),
        ("efficientnet_b0", {}, False, "SGD (the network has batch norms)"),
        ("vit_b_16", {}, False, "AdamW (from scratch, without batch norms)"),
        ("swin_t", {}, False, "AdamW (from scratch, without batch norms)"),
        ("convnext_tiny", {}, False, "AdamW (from scratch, without batch norms)"),
        ("timm:convnext_atto", {}, False, "AdamW (from scratch, without batch norms)"),
        ("vit_b_16", {}, True, "SGD (the weights are trained already)"),
        ("vit_b_16", {"freeze_backbone": True}, False, "SGD (the last layer only)"),
        ("vit_b_16", {"optimizer": "sgd"}, False, "SGD (the recipe says so)"),
        ("resnet18", {"optimizer": "adamw"}, True, "AdamW (the recipe says so)"),
    ],
)
def test_networks_without_batch_norms_are_trained_from_scratch_by_adamw(
    architecture: str, entries: dict[str, Any], is_trained: bool, expected: str
) -> None:
    with torch.device("meta"):
        network = build(architecture, False, 3)
    chosen = choose_optimizer(decided_recipe(**entries), network, is_trained)
    assert str(chosen) == expected
    assert chosen.rate == (0.3 if expected.startswith("AdamW") else 1.0)


def test_a_step_of_adamw_is_the_learning_rate_whatever_the_gradient() -> None:
    network = nn.Linear(3, 2, bias=False)
    before = network.weight.detach().clone()
    optimizer = make_optimizer(network, dict.fromkeys(network.parameters(), 0.5), "adamw")
    set_learning_rate(optimizer, 0.01)
    network.weight.grad = torch.tensor([[1e-3, -1.0, 100.0], [1.0, 1.0, -1e-3]])
    optimizer.step()
    expected = before * (1 - 0.005 * 0.05) - 0.005 * network.weight.grad.sign()
    torch.testing.assert_close(network.weight.detach(), expected, rtol=1e-4, atol=1e-6)


def test_without_a_new_head_all_have_the_scheduled_learning_rate() -> None:
    groups: list[dict[str, Any]] = make_optimizer(nn.Linear(3, 3)).param_groups
    assert [(group["lr_factor"], group["weight_decay"]) for group in groups] == [
        (1.0, 1e-4),
        (1.0, 0.0),
    ]


def test_a_step_is_proportional_to_the_learning_rate_factor() -> None:
    def network() -> nn.Sequential:
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, 3))

    def moved(factor: float) -> list[Tensor]:
        model = network()
        optimizer = make_optimizer(model, dict.fromkeys(model[2].parameters(), factor))
        take_step(model, optimizer)
        pairs = zip(model.parameters(), network().parameters(), strict=True)
        return [(after - before).detach() for after, before in pairs]

    for slow, fast, factor in zip(moved(1.0), moved(10.0), (1, 1, 10, 10), strict=True):
        assert slow.any()
        torch.testing.assert_close(fast, factor * slow, rtol=1e-3, atol=1e-6)


def take_step(model: nn.Module, optimizer: Optimizer) -> None:
    class Floats(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = model(images.float() / 255)
            return logits

    precision = choose_precision("float32", CPU)
    step = TrainStep(
        model=Floats(),
        optimizer=optimizer,
        scaler=precision.scaler(CPU),
        task=PLAIN,
        precision=precision,
        world=World(0, 1, 0, 1, CPU),
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (6, 3, 2, 2), dtype=torch.uint8, generator=generator)
    step(Batch(images, torch.arange(6) % 3, np.arange(6), 6, {}), 0.1, Sums(CPU))
