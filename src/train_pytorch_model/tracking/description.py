"""What MLflow shows of a run besides its metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class UsedDataSet:
    """Images that a run has used."""

    name: str
    context: str
    """What for: `training` or `validation`."""
    sha256: str
    """Of the list of images with their categories."""
    images: int


@dataclass(frozen=True)
class RunDescription:
    """A run, for people who compare it with others."""

    name: str
    params: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)
    data_sets: Sequence[UsedDataSet] = ()
