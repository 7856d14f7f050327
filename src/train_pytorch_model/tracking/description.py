"""A run as MLflow describes it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from train_pytorch_model.formats.image_directory import ImageDirectory


@dataclass(frozen=True)
class RunDescription:
    """What MLflow shows of a run besides its metrics, for people who compare it with others."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)
    data_sets: Mapping[str, ImageDirectory] = field(default_factory=dict)
    """What they were used for, `training` or `validation` → the images."""
