"""`--help`, for a reader who has never seen the program."""

import re

import pytest
from tests.programs.program import run_program

from train_pytorch_model import __version__
from train_pytorch_model.commands.verbs import VERBS


def words(text: str) -> str:
    """The text without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def test_help_describes_each_verb_in_a_sentence() -> None:
    ended = run_program("--help")
    assert ended.status == 0
    for verb, command in VERBS.items():
        sentence, *_ = (command.__doc__ or "").splitlines()
        assert f"• {verb} {sentence}" in words(ended.stdout)


def test_the_version_is_printed() -> None:
    assert run_program("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_shows_an_example_and_no_none(verb: str) -> None:
    ended = run_program(verb, "--help")
    assert ended.status == 0
    example = f"Example: train-pytorch-model {verb} {VERBS[verb].EXAMPLE}"
    assert example.strip() in words(ended.stdout)
    assert "None" not in ended.stdout


def test_a_verb_may_be_written_with_underscores() -> None:
    assert "train-pytorch-model init-model" in run_program("init_model", "--help").stdout


def test_the_program_alone_prints_its_help() -> None:
    assert run_program() == run_program("--help")


def test_an_unknown_verb_lists_the_verbs() -> None:
    ended = run_program("trian")
    assert ended.status == 2
    for verb in VERBS:
        assert verb in ended.stderr
