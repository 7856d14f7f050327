"""What all verbs share: booleans as Azure ML writes them, and how to get at the programs beside this one."""

import sys
from pathlib import Path

import pytest

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.init_transformation import InitTransformation
from train_pytorch_model.commands.program import activation, without_boolean_values
from train_pytorch_model.commands.train import Train


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
        ("--pretrained true", "--pretrained true"),
    ],
)
def test_a_boolean_with_a_value_is_a_switch(written: str, meant: str) -> None:
    assert without_boolean_values(written.split(), [InitModel, InitTransformation]) == meant.split()


def test_the_switches_of_a_command_are_its_own() -> None:
    assert without_boolean_values(["--quiet", "True"], [Train]) == ["--quiet"]
    assert without_boolean_values(["--quiet", "True"], []) == ["--quiet", "True"]


def test_an_environment_that_is_not_active_is_activated_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "my venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my venv"))
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(activation()) == [f"source '{programs}/activate'"]
    monkeypatch.chdir(tmp_path)
    assert list(activation()) == ["source 'my venv/bin/activate'"]
    monkeypatch.setenv("PATH", str(programs))
    assert list(activation()) == []
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)  # no virtual environment: nothing to activate
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(activation()) == []
