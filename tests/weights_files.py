"""Weights files for tests."""

from pathlib import Path
from typing import Any

import torch


def saved(path: Path, value: object, **options: Any) -> Path:
    torch.save(value, path, **options)
    return path
