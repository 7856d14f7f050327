"""What learns at which rate."""

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from tests.model_directories import HALF, write_model
from tests.painting import paint_folders
from torch import Tensor, nn
from torch.optim import SGD

from train_pytorch_model.data.loader import Batch
from train_pytorch_model.distributed import World
from train_pytorch_model.image_classifier.architectures import FAMILY_OF, build
from train_pytorch_model.image_classifier.normalization import Normalize
from train_pytorch_model.inputs import TrainingInputs, open_training_inputs
from train_pytorch_model.loop.head_rate import HEAD_STEP, MAX_FACTOR, faster_head, mean_square
from train_pytorch_model.loop.metrics import Sums
from train_pytorch_model.loop.optimization import make_optimizer
from train_pytorch_model.loop.passes import TrainStep
from train_pytorch_model.loop.precision import choose_precision
from train_pytorch_model.recipe import Recipe

CPU = torch.device("cpu")
ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=CPU)
CATEGORIES = ("blue", "green", "red")


def inputs_of(
    tmp_path: Path,
    is_pretrained: bool = True,
    categories: tuple[str, ...] = (),
    architecture: str = "resnet18",
) -> TrainingInputs:
    recipe = Recipe(mean=HALF, std=HALF)
    model = write_model(tmp_path / "model", recipe, is_pretrained, categories, architecture)
    images = paint_folders(tmp_path / "images", 4)
    return open_training_inputs(model, images, images)


class Mean(nn.Module):
    """Features that are the mean colour, scaled, and a head where a ResNet has it."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale, self.body, self.fc = scale, nn.Linear(3, 3), nn.Linear(3, 3)
        nn.init.eye_(self.body.weight)
        nn.init.zeros_(self.body.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.scale * self.body(images.mean(dim=(2, 3))))
        return logits


def model_of(network: nn.Module) -> nn.Sequential:
    return nn.Sequential(Normalize(HALF, HALF), network)


def factor_of(inputs: TrainingInputs, network: nn.Module, peak_lr: float = 0.001) -> float:
    factors = faster_head(model_of(network), inputs, peak_lr, 16, ALONE)
    (factor,) = set(factors.values())
    return factor


@pytest.mark.parametrize(
    ("is_pretrained", "categories", "is_faster"),
    [
        pytest.param(False, (), False, id="from scratch"),
        pytest.param(True, (), True, id="pretrained"),
        pytest.param(False, CATEGORIES, False, id="trained on these categories"),
        pytest.param(False, CATEGORIES[:2], True, id="trained on fewer"),
        pytest.param(False, ("x", "y", "z"), True, id="trained on others"),
    ],
)
def test_a_head_learns_faster_than_weights_that_know_more(
    tmp_path: Path, is_pretrained: bool, categories: tuple[str, ...], is_faster: bool
) -> None:
    inputs, network = inputs_of(tmp_path, is_pretrained, categories), Mean(10.0)
    factors = faster_head(model_of(network), inputs, 0.001, 16, ALONE)
    assert set(factors) == (set(network.fc.parameters()) if is_faster else set())
    assert all(factor > 1 for factor in factors.values())
    assert network.training


def test_a_head_learns_the_faster_the_shorter_what_it_is_given(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    network = Mean(10.0)
    square = mean_square(model_of(network), network.fc, inputs, 16, CPU)
    colours = []
    for index in range(len(inputs.training)):
        pixels = torch.from_numpy(np.array(Image.open(inputs.training.path(index)))).float()
        colours.append((10 * (pixels / 255 - 0.5) / 0.5).mean(dim=(0, 1)).square().sum())
    assert square == pytest.approx(float(torch.stack(colours).mean()), rel=1e-4)
    assert factor_of(inputs, network) == pytest.approx(HEAD_STEP / (square * 0.001), rel=0.05)
    assert factor_of(inputs, Mean(10 * math.sqrt(2))) == pytest.approx(
        factor_of(inputs, network) / 2, rel=0.05
    )
    assert factor_of(inputs, Mean(1e4)) == 1.0
    assert factor_of(inputs, Mean(1e-9)) == MAX_FACTOR
    assert faster_head(model_of(Mean(0.0)), inputs, 0.001, 16, ALONE) == {}


def test_a_look_at_features_leaves_the_network_as_it_is(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, architecture="mobilenet_v3_small")
    network = build("mobilenet_v3_small", False, 3)
    before = copy.deepcopy(network.state_dict())
    factors = faster_head(model_of(network), inputs, 0.001, 4, ALONE)
    assert set(factors) == set(network.get_submodule("classifier.3").parameters())
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    assert not any(module._forward_pre_hooks for module in network.modules())


def test_a_higher_rate_is_not_made_higher_for_the_head_and_a_lower_one_stays_low(tmp_path: Path) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    usual = factor_of(inputs, network, 0.001)
    assert factor_of(inputs, network, 0.0001) == usual
    assert factor_of(inputs, network, 0.002) == pytest.approx(usual / 2, rel=0.05)
    assert factor_of(inputs, network, 1.0) == 1.0


def test_images_that_cannot_be_read_say_nothing_of_the_head(tmp_path: Path) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    readable = mean_square(model_of(network), network.fc, inputs, 16, CPU)
    first, *others = (inputs.training.path(index) for index in range(len(inputs.training)))
    first.write_bytes(b"")
    assert mean_square(model_of(network), network.fc, inputs, 16, CPU) != readable
    for path in others[:-1]:
        path.write_bytes(b"")
    assert mean_square(model_of(network), network.fc, inputs, 16, CPU) == 0.0


@pytest.mark.parametrize("architecture", ["resnet18", "mobilenet_v3_small", "vit_b_16"])
def test_of_all_layers_the_last_one_learns_faster(architecture: str) -> None:
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
        parameter: (7.0 if parameter in set(head.parameters()) else 1.0, 1e-4 if parameter.ndim > 1 else 0.0)
        for parameter in network.parameters()
    }
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(found)


def test_without_a_new_head_all_have_the_rate_of_the_schedule() -> None:
    groups: list[dict[str, Any]] = make_optimizer(Mean(1.0)).param_groups
    assert [(group["lr_factor"], group["weight_decay"]) for group in groups] == [(1.0, 1e-4), (1.0, 0.0)]


def test_a_step_moves_the_faster_parameters_further() -> None:
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


def take_step(model: nn.Module, optimizer: SGD) -> None:
    class Floats(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = model(images.float() / 255)
            return logits

    precision = choose_precision("float32", CPU)
    step = TrainStep(
        model=Floats(),
        optimizer=optimizer,
        scaler=precision.scaler(CPU),
        loss_sum=lambda logits, targets: F.cross_entropy(logits, targets, reduction="sum"),
        precision=precision,
        world=World(0, 1, 0, 1, CPU),
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (6, 3, 2, 2), dtype=torch.uint8, generator=generator)
    step(Batch(images, torch.arange(6) % 3, np.arange(6), 6, {}), 0.1, Sums(CPU))
