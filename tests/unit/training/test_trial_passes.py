"""How many images fit in memory at once: halved until they fit, the minimum of all processes."""

import pytest
import torch
from torch import Tensor

from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import ModuleOutOfMemoryError
from train_pytorch_model.training.trial_passes import find_largest_batch

CPU = torch.device("cpu")
ALONE = World(0, 1, 0, 1, CPU)


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
    assert find_largest_batch(memory, largest, least, ALONE) == tried[-1]
    assert memory.tried == tried


def test_the_error_says_what_to_do_if_the_minimum_does_not_fit() -> None:
    with pytest.raises(ModuleOutOfMemoryError) as raised:
        find_largest_batch(Room(1), 8, 2, ALONE)
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

    assert find_largest_batch(Room(16), 16, 1, TwoProcesses(0, 2, 0, 2, CPU)) == 4
    assert find_largest_batch(Room(2), 16, 1, TwoProcesses(0, 2, 0, 2, CPU)) == 2


def test_other_errors_propagate() -> None:
    def fail(_: int) -> None:
        raise RuntimeError("of another kind")

    with pytest.raises(RuntimeError, match=r"^of another kind$"):
        find_largest_batch(fail, 8, 1, ALONE)
