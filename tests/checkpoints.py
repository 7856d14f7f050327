"""Checkpoints with known content, and a check of what is loaded from them."""

from pathlib import Path

import torch

from train_pytorch_model.training.checkpoint_files import Checkpoint, load_checkpoint


def checkpoint_of(step: int) -> Checkpoint:
    tensors = {
        "network.weight": torch.full((2, 3), float(step)),
        "sums.0": torch.tensor([step], dtype=torch.int64),
    }
    return Checkpoint(tensors, {"step": step, "loss": float("inf")})


def accept(_: Checkpoint) -> None:
    """Accept any checkpoint."""


def loaded_step(folder: Path) -> int:
    """The step of the newest intact checkpoint, whose content must be exactly as it was saved."""
    checkpoint, _ = load_checkpoint(folder, accept)
    assert checkpoint is not None
    step = int(checkpoint.values["step"])
    expected = checkpoint_of(step)
    assert checkpoint.values == expected.values
    assert checkpoint.tensors.keys() == expected.tensors.keys()
    assert all(
        torch.equal(checkpoint.tensors[name], tensor) for name, tensor in expected.tensors.items()
    )
    return step
