"""How many images fit in memory at once: halved until they fit, and the minimum of all processes."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests import snapshots
from tests.painting import paint_folders
from torch import Tensor

from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.opening import open_training_inputs
from train_pytorch_model.training.out_of_memory import explaining_out_of_memory
from train_pytorch_model.training.plan import Plan, make_plan
from train_pytorch_model.training.trials import largest_that_fits

CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory, untrained_resnet18: Path) -> Plan:
    images = paint_folders(tmp_path_factory.mktemp("images") / "images", 2)
    inputs = open_training_inputs(untrained_resnet18, images, images).with_flips(True)
    return make_plan(TrainConfig(batch_size=32), inputs, ALONE)


class Room:
    """Memory for this many images."""

    def __init__(self, images: int) -> None:
        self.images = images
        self.tried: list[int] = []

    def __call__(self, images: int) -> None:
        self.tried.append(images)
        if images > self.images:
            raise torch.OutOfMemoryError("CUDA out of memory.")


@pytest.mark.parametrize(
    ("room", "largest", "least", "tried"),
    [
        (16, 16, 1, [16]),
        (15, 16, 1, [16, 8]),
        (1, 16, 1, [16, 8, 4, 2, 1]),
        (2, 13, 2, [13, 6, 3, 2]),
        (5, 9, 4, [9, 4]),
    ],
)
def test_the_number_of_images_is_halved_until_they_fit(
    room: int, largest: int, least: int, tried: list[int]
) -> None:
    memory = Room(room)
    assert largest_that_fits(memory, largest, least, ALONE) == tried[-1]
    assert memory.tried == tried


def test_the_error_says_what_to_do_if_the_minimum_does_not_fit() -> None:
    with pytest.raises(ModuleOutOfMemoryError) as raised:
        largest_that_fits(Room(1), 8, 2, ALONE)
    assert str(raised.value) == (
        "Memory has been exhausted, unable to complete running of module. Details: not even 2"
        " images fit."
        " Lower the recipe's image_size and training_size, or take another architecture."
    )
    assert raised.value.images_at_once == 2


def test_the_process_with_the_least_memory_decides() -> None:
    class TwoProcesses(World):
        def max(self, values: Tensor) -> Tensor:
            return torch.maximum(values, torch.tensor([-4]))

    assert largest_that_fits(Room(16), 16, 1, TwoProcesses(0, 2, 0, 2, CPU)) == 4
    assert largest_that_fits(Room(2), 16, 1, TwoProcesses(0, 2, 0, 2, CPU)) == 2


def test_other_errors_propagate() -> None:
    def fail(_: int) -> None:
        raise RuntimeError("of another kind")

    with pytest.raises(RuntimeError, match=r"^of another kind$"):
        largest_that_fits(fail, 8, 1, ALONE)


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
