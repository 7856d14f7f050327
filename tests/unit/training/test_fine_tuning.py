"""How fine-tuning starts: batch norm statistics, and the learning rates of a new head and of
filters.
"""

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tests.model_directories import HALF, write_model
from tests.painting import paint_folders
from tests.trainings import start_training, uncached
from torch import Tensor, nn

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.architectures import build
from train_pytorch_model.image_classifier.classifier import Normalize
from train_pytorch_model.inputs.opening import TrainingInputs, open_training_inputs
from train_pytorch_model.networks.batch_norms import running_statistics, set_training_mode
from train_pytorch_model.training.fine_tuning import (
    HEAD_STEP,
    MAX_FACTOR,
    MAX_WHITENED_FACTOR,
    STATISTICS_FRACTION,
    WHITENED_HEAD_STEP,
    LearningRateFactors,
    features_of,
    mean_squared_norm,
    prepare_fine_tuning,
    sample_images,
)
from train_pytorch_model.training.optimizer import OptimizerName
from train_pytorch_model.training.plan import make_plan
from train_pytorch_model.training.plan_text import describe, params_of

ALONE = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))
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
    return open_training_inputs(model, images, images).with_flips(True)


class Mean(nn.Module):
    """A network whose features are the scaled mean colour, with its head where a ResNet has it."""

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


def prepare(
    network: nn.Module,
    inputs: TrainingInputs,
    learning_rate: float = 0.001,
    epochs: int = 5,
    optimizer: OptimizerName = "sgd",
) -> LearningRateFactors:
    config = TrainConfig(learning_rate=learning_rate, epochs=epochs)
    factors, _ = prepare_fine_tuning(
        model_of(network), inputs, config, ALONE, learning_rate, optimizer
    )
    return factors


def factor_of(
    inputs: TrainingInputs, network: Mean, learning_rate: float = 0.001, epochs: int = 5
) -> float:
    return prepare(network, inputs, learning_rate, epochs).head


@pytest.mark.parametrize(
    ("is_pretrained", "categories", "is_faster"),
    [
        pytest.param(False, (), False, id="from scratch"),
        pytest.param(True, (), True, id="pretrained"),
        pytest.param(False, CATEGORIES, False, id="trained on these categories"),
        pytest.param(
            False, CATEGORIES[::-1], False, id="trained on these categories in another order"
        ),
        pytest.param(False, CATEGORIES[:2], True, id="trained on fewer categories"),
        pytest.param(False, ("x", "y", "z"), True, id="trained on other categories"),
    ],
)
def test_a_new_head_has_a_higher_learning_rate_than_trained_weights(
    tmp_path: Path, is_pretrained: bool, categories: tuple[str, ...], is_faster: bool
) -> None:
    inputs, network = inputs_of(tmp_path, is_pretrained, categories), Mean(10.0)
    factors = prepare(network, inputs)
    assert (factors.head > 1) is is_faster
    assert factors.head >= 1
    assert factors.backbone == 1
    by_parameter = factors.by_parameter(network, network.fc)
    assert set(by_parameter) == set(network.parameters())
    assert {by_parameter[parameter] for parameter in network.fc.parameters()} == {factors.head}
    assert {by_parameter[parameter] for parameter in network.body.parameters()} == {1.0}
    assert network.training


def test_with_adamw_the_heads_learning_rate_does_not_depend_on_its_inputs(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    for scale in (1.0, 10.0):
        factors = prepare(Mean(scale), inputs, epochs=20, optimizer="adamw")
        assert factors == LearningRateFactors(head=5.0, backbone=0.5)


def test_the_plan_names_adamw_and_what_it_does_to_the_learning_rate(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", Recipe(optimizer="adamw", mean=HALF, std=HALF))
    images = paint_folders(tmp_path / "images", 4)
    plan = make_plan(
        TrainConfig(), open_training_inputs(model, images, images).with_flips(True), ALONE
    )
    assert describe(plan, LearningRateFactors())["Optimizer"] == "AdamW (the recipe says so)"
    assert describe(plan, LearningRateFactors())["Peak LR"].startswith(
        "0.0003 = learning rate 0.001 x 1 process x 0.3 for AdamW,"
    )
    assert plan.learning_rate(epoch=1, step=0, rollback_factor=1.0) == pytest.approx(0.0003)
    assert params_of(plan, LearningRateFactors())["optimizer"] == "adamw"


def test_the_heads_learning_rate_is_inverse_to_its_inputs_squared_norm(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path)
    network = Mean(10.0)
    images = sample_images(inputs, 12, ALONE)
    square = mean_squared_norm(features_of(network.fc, model_of(network), images))
    colours = []
    for index in range(len(inputs.training)):
        pixels = torch.from_numpy(np.array(Image.open(inputs.training.path(index)))).float()
        colours.append((10 * (pixels / 255 - 0.5) / 0.5).mean(dim=(0, 1)).square().sum())
    assert square == pytest.approx(float(torch.stack(colours).mean()), rel=1e-4)
    assert factor_of(inputs, network) == pytest.approx(HEAD_STEP / (square * 0.001), rel=0.05)
    assert factor_of(inputs, Mean(10 * math.sqrt(2))) == pytest.approx(
        factor_of(inputs, network) / 2, rel=0.05
    )
    assert factor_of(inputs, Mean(1e-9)) == MAX_FACTOR
    assert factor_of(inputs, Mean(0.0)) == 1.0


def test_batch_norm_statistics_move_towards_the_images_and_are_frozen(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, architecture="mobilenet_v3_small")
    network = build("mobilenet_v3_small", False, 3)
    given = copy.deepcopy(network)
    prepare(network, inputs)
    assert not any(module._forward_pre_hooks for module in network.modules())
    torch.testing.assert_close(list(network.parameters()), list(given.parameters()), rtol=0, atol=0)
    images = Normalize(HALF, HALF)(sample_images(inputs, 12, ALONE))
    seen = given.get_submodule("features.0.0")(images)
    for name, of_images in ("mean", seen.mean(dim=(0, 2, 3))), ("var", seen.var(dim=(0, 2, 3))):
        before, blended = (
            net.get_buffer(f"features.0.1.running_{name}") for net in (given, network)
        )
        torch.testing.assert_close(
            blended, torch.lerp(before, of_images, STATISTICS_FRACTION), rtol=1e-4, atol=1e-5
        )
    before = running_statistics(network)
    set_training_mode(network)
    trained = network.get_submodule("features.0")(images)
    network.eval()
    torch.testing.assert_close(running_statistics(network), before, rtol=0, atol=0)
    torch.testing.assert_close(network.get_submodule("features.0")(images), trained, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("length", "peak_lr", "factor"),
    [(1.0, 0.001, 1.0), (1.0, 0.012, 0.25), (0.2, 0.001, 0.12), (0.2, 0.0001, 1.0)],
)
def test_the_learning_rate_of_filters_is_capped_by_their_norm(
    length: float, peak_lr: float, factor: float, tmp_path: Path
) -> None:
    inputs, network = inputs_of(tmp_path), build("resnet18", False, 3)
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            filters = module.weight.detach().flatten(1)
            filters *= length / filters.norm(dim=1, keepdim=True)
    assert prepare(network, inputs, learning_rate=peak_lr).backbone == factor


def test_layers_that_are_not_trained_keep_their_statistics(tmp_path: Path) -> None:
    network = build("resnet18", False, 3)
    for layer in (network.conv1, network.bn1, network.layer1):
        layer.requires_grad_(False)
    before = copy.deepcopy(network.state_dict())
    prepare(network, inputs_of(tmp_path))
    after = network.state_dict()
    changed = {name.split(".")[0] for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"layer2", "layer3", "layer4"}


def test_the_plan_shows_learning_rates_and_batch_norms(tmp_path: Path) -> None:
    InitModel(output=tmp_path / "untrained", architecture="resnet18").run()
    images = paint_folders(tmp_path / "images", 4)
    random = open_training_inputs(tmp_path / "untrained", images, images).with_flips(True)
    pretrained = replace(random, model=replace(random.model, is_pretrained=True))
    fine_tuned, from_scratch = (
        start_training(TrainConfig(learning_rate=0.1), inputs) for inputs in (pretrained, random)
    )
    kept = "use frozen pretrained statistics, moved 30% towards those of 12 training images"
    of_fine_tuned = describe(fine_tuned.plan, fine_tuned.engine.lr_factors)
    assert of_fine_tuned["Batch norms"] == kept
    params = params_of(fine_tuned.plan, fine_tuned.engine.lr_factors)
    head, body = (f"{0.1 * params[name]:.2g}" for name in ("head_lr_factor", "body_lr_factor"))
    rates = (
        f"; {head} for the new last layer; {body} for the backbone, the most it tolerates in 5"
        f" epochs"
    )
    assert of_fine_tuned["Peak LR"].endswith(rates)
    assert float(body) < 0.1
    of_scratch = describe(from_scratch.plan, from_scratch.engine.lr_factors)
    assert "Batch norms" not in of_scratch
    assert of_scratch["Peak LR"].endswith("no warmup, polynomial decay")


def test_the_first_layers_keep_their_weights(tmp_path: Path) -> None:
    InitModel(output=tmp_path / "untrained", architecture="resnet18").run()
    images = paint_folders(tmp_path / "images", 4)
    random = open_training_inputs(tmp_path / "untrained", images, images).with_flips(True)
    pretrained = replace(random, model=replace(random.model, is_pretrained=True))
    training = start_training(TrainConfig(epochs=1), pretrained)
    before = copy.deepcopy(training.engine.network.state_dict())
    with uncached(training.engine) as batches:
        training.train(batches)
    trained = training.engine.network.state_dict()
    changed = {
        name.split(".")[0] for name in before if not torch.equal(before[name], trained[name])
    }
    assert changed == {"layer2", "layer3", "layer4", "fc"}
    assert (
        describe(training.plan, training.engine.lr_factors)["Fine-tuning"]
        == "the first 33% of the computation stays as given"
    )


@pytest.mark.parametrize(
    ("is_pretrained", "is_frozen", "epochs"),
    [
        pytest.param(False, False, 5, id="from scratch"),
        pytest.param(True, True, 5, id="a frozen backbone"),
        pytest.param(True, False, 11, id="a long training"),
    ],
)
def test_no_layers_are_kept_elsewhere(
    tmp_path: Path, is_pretrained: bool, is_frozen: bool, epochs: int
) -> None:
    recipe = Recipe(mean=HALF, std=HALF, freeze_backbone=is_frozen)
    model = write_model(tmp_path / "model", recipe, is_pretrained)
    images = paint_folders(tmp_path / "images", 4)
    inputs = open_training_inputs(model, images, images, epochs).with_flips(True)
    plan = make_plan(TrainConfig(epochs=epochs), inputs, ALONE)
    assert plan.num_frozen == 0
    assert "Fine-tuning" not in describe(plan, LearningRateFactors())


def test_without_a_new_head_batch_norms_are_not_frozen(tmp_path: Path) -> None:
    inputs = inputs_of(tmp_path, False, CATEGORIES, "mobilenet_v3_small")
    network = build("mobilenet_v3_small", False, 3)
    before = copy.deepcopy(network.state_dict())
    prepare(network, inputs)
    torch.testing.assert_close(network.state_dict(), before, rtol=0, atol=0)
    set_training_mode(network)
    assert all(module.training for module in network.modules())


def test_the_heads_learning_rate_is_constant_above_the_default_and_proportional_below(
    tmp_path: Path,
) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    usual = factor_of(inputs, network, 0.001)
    assert factor_of(inputs, network, 0.0001) == usual
    assert factor_of(inputs, network, 0.002) == pytest.approx(usual / 2, rel=0.05)
    assert factor_of(inputs, network, 1.0) == pytest.approx(usual / 1000, rel=0.05)


@pytest.mark.parametrize(("epochs", "share"), [(1, 1.0), (10, 1.0), (20, 0.5), (100, 0.1)])
def test_training_beyond_ten_epochs_has_proportionally_lower_learning_rates(
    tmp_path: Path, epochs: int, share: float
) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    usual = factor_of(inputs, network)
    assert factor_of(inputs, network, epochs=epochs) == pytest.approx(share * usual, rel=0.05)
    assert prepare(network, inputs, epochs=epochs).backbone == share


def test_unreadable_images_are_not_sampled(tmp_path: Path) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    readable = sample_images(inputs, 12, ALONE)
    first, *others = (inputs.training.path(index) for index in range(len(inputs.training)))
    first.write_bytes(b"")
    assert torch.equal(sample_images(inputs, 12, ALONE), readable[1:])
    for path in others[:-1]:
        path.write_bytes(b"")
    assert factor_of(inputs, network) == 1.0


@pytest.mark.parametrize(("optimizer", "is_whitened"), [("sgd", True), ("adamw", False)])
def test_the_steps_of_sgd_are_whitened_if_they_are_to_be(
    tmp_path: Path, optimizer: OptimizerName, is_whitened: bool
) -> None:
    inputs, network = inputs_of(tmp_path), Mean(10.0)
    factors, whitening = prepare_fine_tuning(
        model_of(network), inputs, TrainConfig(), ALONE, 0.001, optimizer, is_whitened=True
    )
    assert (whitening is not None) is factors.is_whitened is is_whitened
    if whitening is not None:
        expected = WHITENED_HEAD_STEP / (whitening.squared_norm * 0.001)
        assert factors.head == pytest.approx(min(MAX_WHITENED_FACTOR, expected), rel=0.05)
