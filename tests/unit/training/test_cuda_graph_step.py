"""Which networks a CUDA graph can capture: those whose steps never synchronize with the GPU."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from train_pytorch_model.image_classifier.architectures import FAMILIES, build
from train_pytorch_model.training.cuda_graph_step import can_be_captured
from train_pytorch_model.training.margins import label_margins_of, margins_of
from train_pytorch_model.training.metrics import Sums, best_ranks_of, ranks_of

# Operations whose values or output sizes the CPU would have to wait for.
SYNCHRONISING = {
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


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records the operations that synchronize."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operations: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        name = func.overloadpacket.__name__
        if name in SYNCHRONISING or (name == "index" and any(_is_mask(index) for index in args[1])):
            self.operations.append(name)
        return func(*args, **(kwargs or {}))


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def synchronizations_in_a_step(network: nn.Module, side: int) -> list[str]:
    """The synchronizing operations of a training step of two images, including its metrics."""
    sums = Sums(torch.device("cpu"))
    images, targets = torch.randn(2, 3, side, side), torch.tensor([0, 1])
    mixed = nn.functional.one_hot(targets, 3).float()  # CutMix makes them outside the step
    network.train()
    with Recorder() as recorder:
        logits = network(images)
        loss_sum = nn.functional.cross_entropy(logits, targets, reduction="sum")
        loss_sum.backward()  # type: ignore[no-untyped-call]
        sums.add(loss_sum, ranks_of(logits, targets))
        for given in (targets, mixed):
            margins_of(logits, given)
        best_ranks_of(logits, mixed)  # of images with any number of categories
        label_margins_of(logits, mixed)
    found: list[str] = recorder.operations
    return found


@pytest.mark.parametrize(
    "architecture", [*ONE_OF_EACH, "swin_v2_t", "efficientnet_v2_s", "regnet_y_400mf"]
)
def test_a_step_does_not_synchronize(architecture: str) -> None:
    network = build(architecture, False, 3)
    assert can_be_captured(network)
    assert synchronizations_in_a_step(network, 64) == []


def test_a_step_of_a_vision_transformer_does_not_synchronize() -> None:
    assert synchronizations_in_a_step(build("vit_b_32", False, 3), 224) == []


def test_synchronization_is_detected() -> None:
    class Synchronizing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3 * 8 * 8, 3)

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.linear(images.flatten(1))
            return logits * logits.max().item()

    assert synchronizations_in_a_step(Synchronizing(), 8) == ["_local_scalar_dense"]


def test_activation_checkpointing_is_not_captured() -> None:
    """It restores the RNG state, which a captured graph cannot."""
    network = build("densenet121", True, 3)
    assert not can_be_captured(network)
