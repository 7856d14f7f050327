"""`quickstart` from end to end, on a few of the digits."""

import re
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tyro
from sklearn.datasets import load_digits

from tests.programs.program import run_program
from train_pytorch_model.commands.verbs import VERBS
from train_pytorch_model.datasets import digits as quickstart

NUM_DIGITS = 80


def some_digits() -> Any:
    """The first `NUM_DIGITS` images of zeros and ones."""
    digits = load_digits(n_class=2)
    digits.images, digits.target = digits.images[:NUM_DIGITS], digits.target[:NUM_DIGITS]
    return digits


def test_the_quickstart_trains_scores_and_prints_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quickstart, "load_digits", some_digits)
    ended = run_program("quickstart", "--output", tmp_path / "quickstart")
    assert (ended.status, ended.stderr) == (0, "")
    warnings = [line for line in ended.stdout.splitlines() if "Warning" in line]
    assert ["few to train from scratch" in line for line in warnings] == [
        True
    ]  # about the few digits
    chapters = [line[:3] for line in ended.stdout.splitlines() if re.match(r"\d\. ", line)]
    assert chapters == ["1. ", "2. ", "3. ", "4. ", "5. "]
    scores = pd.read_csv(tmp_path / "quickstart" / "scores" / "scores.csv")
    assert set(scores["category"]) == {"zero", "one"}
    right = (scores["category"] == scores["Scored Labels"]).sum()
    assert f": {right} of {round(0.15 * NUM_DIGITS)} images\n" in ended.stdout
    _, _, commands = ended.stdout.partition("\n5. ")
    lines = [line for line in commands.splitlines() if "train_pytorch_model" in line]
    assert [shlex.split(line)[3] for line in lines] == ["fit"]
    for line in lines:
        _, _, _, verb, *arguments = shlex.split(line)
        tyro.cli(VERBS[verb], args=arguments)
