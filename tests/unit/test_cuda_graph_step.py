"""What a GPU can play back: networks that never ask it for a value on their way."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from train_pytorch_model.image_classifier.architectures import FAMILIES, build
from train_pytorch_model.loop.cuda_graph_step import can_be_captured
from train_pytorch_model.loop.metrics import Sums

# Of these the processor would have to know the values, or how many there are.
ASKING = {
    "_local_scalar_dense",
    "equal",
    "is_nonzero",
    "item",
    "masked_select",
    "nonzero",
    "unique",
    "_unique2",
    "repeat_interleave",
}
ONE_OF_EACH = [family.architectures[0] for family in FAMILIES if family.image_size is None]


class Asked(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes which operations ask."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.by: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        if name in ASKING or (name == "index" and any(_is_mask(index) for index in args[1])):
            self.by.append(name)
        return func(*args, **(kwargs or {}))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def asked_in_a_step(network: nn.Module, side: int) -> list[str]:
    """A training step of two images, with all that is counted on the way."""
    sums = Sums(torch.device("cpu"))
    images, targets = torch.randn(2, 3, side, side), torch.tensor([0, 1])
    network.train()
    with Asked() as asked:
        logits = network(images)
        loss_sum = nn.functional.cross_entropy(logits, targets, reduction="sum")
        loss_sum.backward()  # type: ignore[no-untyped-call]
        sums.add(loss_sum, logits, targets)
    found: list[str] = asked.by
    return found


@pytest.mark.parametrize("architecture", [*ONE_OF_EACH, "swin_v2_t", "efficientnet_v2_s", "regnet_y_400mf"])
def test_a_step_asks_for_nothing(architecture: str) -> None:
    network = build(architecture, False, 3)
    assert can_be_captured(network)
    assert asked_in_a_step(network, 64) == []


def test_one_with_patches_asks_for_nothing() -> None:
    assert asked_in_a_step(build("vit_b_32", False, 3), 224) == []


def test_asking_is_seen() -> None:
    class Asking(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3 * 8 * 8, 3)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.linear(images.flatten(1))
            return logits * logits.max().item()

    assert asked_in_a_step(Asking(), 8) == ["_local_scalar_dense"]


def test_what_computes_twice_to_save_memory_is_not_recorded() -> None:
    """It puts back the state of the random numbers, which a recording cannot."""
    network = build("densenet121", True, 3)
    assert not can_be_captured(network)
