"""The commands that a user may want to run next."""

import sys
from pathlib import Path

import pytest

from train_pytorch_model.commands.next_steps import activation_commands
from train_pytorch_model.machine.command_lines import correction_command


def test_an_environment_that_is_not_active_is_activated_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "my venv" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "my venv"))
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(activation_commands()) == [f"source '{programs}/activate'"]
    monkeypatch.chdir(tmp_path)
    assert list(activation_commands()) == ["source 'my venv/bin/activate'"]
    monkeypatch.setenv("PATH", str(programs))
    assert list(activation_commands()) == []
    monkeypatch.setattr(
        sys, "prefix", sys.base_prefix
    )  # no virtual environment: nothing to activate
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(activation_commands()) == []


def test_decisions_about_new_images_are_trained_with_from_their_folder() -> None:
    labelled = correction_command(Path("my photographs"), has_categories=True)
    assert labelled.endswith(" fit 'my photographs' --corrections corrections.csv")
    new = correction_command(Path("new"), has_categories=False)
    assert new.endswith(" fit FOLDER --corrections new/corrections.csv")
