"""Weights files for tests."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from train_pytorch_model.image_classifier.architectures import build


def saved(path: Path, value: object, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path


def with_prefix(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights under their names in a model directory."""
    return {f"model.{name}": value for name, value in state.items()}


def write_weights(root: Path, architecture: str, num_classes: int) -> None:
    """Write random weights into a model directory."""
    torch.manual_seed(1)
    saved(root / "model", with_prefix(build(architecture, False, num_classes).state_dict()))


def fake_hub(
    patch: pytest.MonkeyPatch, cache: Path, repository: str = "", weights: Path | None = None
) -> None:
    """Take the Hugging Face hub away, and put this file of weights into its cache."""
    from huggingface_hub import constants

    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    if weights is not None:
        commit, root = "0" * 40, cache / f"models--{repository.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text(commit)
        (root / "snapshots" / commit).mkdir(parents=True)
        shutil.copy(weights, root / "snapshots" / commit / "model.safetensors")
