"""`--help` as somebody reads it who has never seen the program."""

import re

import pytest
from tests.programs.program import run_program

from train_pytorch_model import __version__
from train_pytorch_model.commands.verbs import VERBS


def words(text: str) -> str:
    """Without frames and line breaks."""
    return " ".join(re.sub("[│╭╮╰╯─]", " ", text).split())


def test_the_program_names_its_verbs_in_a_sentence_each() -> None:
    ended = run_program("--help")
    assert ended.status == 0
    for verb, command in VERBS.items():
        sentence, *_ = (command.__doc__ or "").splitlines()
        assert f"• {verb} {sentence}" in words(ended.stdout)


def test_the_program_knows_its_version() -> None:
    assert run_program("--version").stdout == f"{__version__}\n"


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_an_example_and_no_python(verb: str) -> None:
    ended = run_program(verb, "--help")
    assert ended.status == 0
    example = f"Example: train-pytorch-model {verb} {VERBS[verb].EXAMPLE}"
    assert example.strip() in words(ended.stdout)
    assert "None" not in ended.stdout


def test_a_verb_may_be_written_with_underscores() -> None:
    assert "train-pytorch-model init-model" in run_program("init_model", "--help").stdout


@pytest.mark.parametrize("arguments", [[], ["trian"]], ids=["nothing", "a slip"])
def test_what_is_no_verb_is_answered_with_the_verbs(arguments: list[str]) -> None:
    ended = run_program(*arguments)
    assert ended.status == 2
    for verb in VERBS:
        assert verb in ended.stderr
