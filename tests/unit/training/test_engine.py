"""How many images the engine computes at once, and which steps wait."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests import snapshots
from tests.painting import paint_folders

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.world import World
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.networks.small_maps import unmet_weights_of
from train_pytorch_model.training.engine import start_engine
from train_pytorch_model.training.plan import Plan, make_plan
from train_pytorch_model.training.precision import Precision

CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, untrained_resnet18: Path) -> Plan:
    images = paint_folders(tmp_path_factory.mktemp("images") / "images", 2)
    inputs = open_training_inputs(untrained_resnet18, images, images).with_flips(True)
    return make_plan(TrainConfig(batch_size=32), inputs, ALONE)


@pytest.mark.parametrize(
    ("trained", "training_side", "validated"),
    [(16, 224, 64), (16, 160, 32), (256, 224, 512), (600, 224, 600), (16, 8, 1)],
)
def test_the_number_of_images_validated_at_once_follows_their_size(
    plan: Plan, trained: int, training_side: int, validated: int
) -> None:
    recipe = replace(plan.inputs.recipe, training_size=(training_side, training_side))
    spec = replace(plan.inputs.spec, framing=Framing(224, 224, 0.875))
    inputs = replace(plan.inputs, recipe=recipe, spec=spec)
    gpu = World(0, 1, 0, 1, torch.device("cuda"))
    plan = replace(plan, world=gpu, inputs=inputs)
    engine = replace(snapshots.start().engine, plan=plan, micro_batch=trained)
    assert engine.validated_at_once == validated


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_steps_wait_unless_a_scaler_has_to_unscale_all_gradients(
    plan: Plan, dtype: torch.dtype
) -> None:
    engine = start_engine(replace(plan, precision=Precision(dtype, "")))
    assert bool(unmet_weights_of(engine.network)) != engine.scaler.is_enabled()
