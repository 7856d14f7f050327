"""From a command line to a command: Azure ML's booleans."""

import pytest

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.parsing import without_boolean_values
from train_pytorch_model.commands.train import Train
from train_pytorch_model.commands.transform import InitTransformation
from train_pytorch_model.config.train_config import TrainConfig


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("--pretrained True", "--pretrained"),
        ("--pretrained False", ""),
        ("--pretrained", "--pretrained"),
        ("--random-horizontal-flip True", ""),
        ("--random-horizontal-flip False", "--no-random-horizontal-flip"),
        ("--random_horizontal_flip False --output x", "--no-random_horizontal_flip --output x"),
        ("--horizontal-flip False", "--horizontal-flip False"),  # it has a third value
        ("--output True", "--output True"),  # a folder of that name
        ("--pretrained true", "--pretrained"),  # as `az ml job create --set` passes it on
        ("--random-horizontal-flip false", "--no-random-horizontal-flip"),
    ],
)
def test_a_boolean_with_a_value_becomes_a_switch(written: str, meant: str) -> None:
    found = written.split()
    for command in (InitModel, InitTransformation):
        found = without_boolean_values(found, command)
    assert found == meant.split()


def test_only_the_switches_of_the_command_are_converted() -> None:
    assert without_boolean_values(["--quiet", "True"], Train) == ["--quiet"]
    assert without_boolean_values(["--quiet", "True"], TrainConfig) == ["--quiet", "True"]
