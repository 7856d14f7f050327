"""What to do about memory that runs out while a training goes on."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.painting import paint_folders

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.training.out_of_memory import explaining_out_of_memory
from train_pytorch_model.training.plan import Plan, make_plan

CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, untrained_resnet18: Path) -> Plan:
    images = paint_folders(tmp_path_factory.mktemp("images") / "images", 2)
    inputs = open_training_inputs(untrained_resnet18, images, images).with_flips(True)
    return make_plan(TrainConfig(batch_size=32), inputs, ALONE)


@pytest.mark.parametrize(
    ("images", "trained", "least", "then", "told"),
    [
        (16, 16, 1, 8, "16 images at once do not fit (no memory). The same command resumes"),
        (
            64,
            16,
            1,
            8,
            "64 images at once do not fit (no memory). The same command resumes",
        ),  # in validation
        (3, 3, 2, 2, "3 images at once do not fit"),
        (2, 2, 2, 2, "not even 2 images fit."),
        (1, 1, 1, 1, "not even one image fits."),
    ],
)
def test_running_out_of_memory_later_names_the_next_number_to_try(
    plan: Plan, images: int, trained: int, least: int, then: int, told: str
) -> None:
    plan = replace(plan, min_local_batch=least)
    with (
        pytest.raises(ModuleOutOfMemoryError) as raised,
        explaining_out_of_memory(plan, trained, images),
    ):
        raise torch.OutOfMemoryError("no memory")
    assert f"Details: {told}" in str(raised.value)
    assert raised.value.images_at_once == then


def test_the_cpu_running_out_of_memory_is_recognised_and_other_errors_propagate(plan: Plan) -> None:
    text = (
        "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"
    )
    with pytest.raises(ModuleOutOfMemoryError), explaining_out_of_memory(plan, 32, 32):
        raise RuntimeError(text)
    with (
        pytest.raises(RuntimeError, match="of another kind"),
        explaining_out_of_memory(plan, 32, 32),
    ):
        raise RuntimeError("of another kind")
