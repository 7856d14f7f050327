"""Image operations: torchvision's arguments, which ones are random, and how large an image can
become.
"""

import inspect
from typing import Any

import msgspec
import pytest
from torchvision.transforms import InterpolationMode, v2

from train_pytorch_model.formats.transformation_directory import (
    OPERATIONS,
    CenterCrop,
    ColorJitter,
    Grayscale,
    Operation,
    Pad,
    RandomCrop,
    RandomRotation,
    Resize,
)


def plain(default: Any) -> Any:
    """A torchvision default in the form that these operations use."""
    return default.value if isinstance(default, InterpolationMode) else default


@pytest.mark.parametrize("name", OPERATIONS)
def test_arguments_and_defaults_match_torchvision(name: str) -> None:
    theirs = [
        p for p in inspect.signature(getattr(v2, name)).parameters.values() if p.name != "antialias"
    ]
    ours = msgspec.structs.fields(OPERATIONS[name])
    assert [field.name for field in ours] == [parameter.name for parameter in theirs]
    for field, parameter in zip(ours, theirs, strict=True):
        if (
            not field.required and field.default is not None
        ):  # None stands for torchvision's default
            assert field.default == plain(parameter.default)


def test_a_colour_jitter_is_random_only_with_nonzero_strengths() -> None:
    assert not ColorJitter().is_random
    assert not ColorJitter(brightness=0).is_random
    assert ColorJitter(hue=0.1).is_random


@pytest.mark.parametrize(
    ("operation", "bound"),
    [
        (Resize(10), (10, 20)),
        (Resize([10, 11]), (10, 11)),
        (Resize(10, max_size=15), (8, 15)),
        (CenterCrop(50), (50, 80)),
        (Pad(3), (46, 86)),
        (Pad([1, 2]), (44, 82)),
        (Pad([1, 2, 3, 4]), (46, 84)),
        (RandomCrop(10), (40, 80)),
        (RandomCrop(100, padding=1, pad_if_needed=True), (158, 118)),
        (RandomRotation(5), (40, 80)),
        (RandomRotation(5, expand=True), (92, 92)),
        (Grayscale(), (40, 80)),
    ],
)
def test_the_largest_intermediate_size_is_known_in_advance(
    operation: Operation, bound: tuple[int, int]
) -> None:
    assert operation.bound(40, 80) == bound
