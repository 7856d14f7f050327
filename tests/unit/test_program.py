"""Booleans as Azure ML writes them."""

import pytest

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.program import without_boolean_values
from train_pytorch_model.commands.train import Train


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--pretrained True", "--pretrained"),
        ("--pretrained False", ""),
        ("--pretrained", "--pretrained"),
        ("--horizontal-flip True", ""),
        ("--horizontal-flip False", "--no-horizontal-flip"),
        ("--horizontal_flip False --output x", "--no-horizontal_flip --output x"),
        ("--output True", "--output True"),  # a folder of that name
        ("--pretrained true", "--pretrained true"),
    ],
)
def test_a_boolean_with_a_value_is_a_switch(written: str, meant: str) -> None:
    assert without_boolean_values(written.split(), [InitModel]) == meant.split()


def test_the_switches_of_a_command_are_its_own() -> None:
    assert without_boolean_values(["--quiet", "True"], [Train]) == ["--quiet"]
    assert without_boolean_values(["--quiet", "True"], []) == ["--quiet", "True"]
