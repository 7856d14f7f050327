"""From a command line to a command: its options as the fields of a dataclass."""

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from operator import or_
from typing import Annotated, Any, NoReturn, Protocol

import tyro

from train_pytorch_model.commands.hints import hints, missing_verb
from train_pytorch_model.config.options import options_in
from train_pytorch_model.errors import ParameterError


class Command(Protocol):
    """A parsed command line."""

    EXAMPLE: str
    """Its arguments in a typical call, for `--help`."""

    def run(self) -> None:
        """Run the command. Raises `UserError`."""


def parse(command: type[Command], prog: str, arguments: Sequence[str]) -> Command:
    """Parse the options of a command; exits with status 2 if they are wrong, 0 after `--help`."""
    description = f"{inspect.getdoc(command)}\n\nExample:\n  {prog} {command.EXAMPLE}"
    options = without_boolean_values(arguments, command)
    return tyro.cli(command, prog=prog, description=description, args=options)


def parse_verb(
    verb: str, commands: Mapping[str, type[Command]], prog: str, arguments: Sequence[str]
) -> Command:
    """Parse a verb's options; also print what was probably meant by those that it lacks."""
    if verb not in commands:
        raise missing_verb(verb, list(commands), prog)
    _refuse_empty_values(verb, arguments)
    try:
        return parse(commands[verb], f"{prog} {verb}", arguments)
    except SystemExit as end:
        if end.code:
            options = {
                name: [option.name for option in options_in(command)]
                for name, command in commands.items()
            }
            print(*hints(arguments, verb, options), sep="\n", file=sys.stderr)
        raise


def print_verbs(commands: Mapping[str, type[Command]], prog: str, description: str) -> NoReturn:
    """Print the help of a program with several verbs; exits with status 0."""
    verbs: list[Any] = []
    for verb, command in commands.items():
        first_paragraph = (inspect.getdoc(command) or "").partition("\n\n")[0]
        summary = " ".join(first_paragraph.split())
        verbs.append(Annotated[command, tyro.conf.subcommand(verb, description=summary)])
    tyro.cli(reduce(or_, verbs), prog=prog, description=description, args=["--help"])
    raise AssertionError("tyro exits after --help")


def _refuse_empty_values(verb: str, arguments: Sequence[str]) -> None:
    """Raise `ParameterError` for an empty value, as of a shell variable that is not set."""
    for option, value in pairwise(["", *arguments]):
        if not value or re.fullmatch("--[a-z-]+=", value):
            name = value[:-1] or option or verb
            raise ParameterError(f"{name} is empty. Is a shell variable not set?")


def without_boolean_values(arguments: Sequence[str], command: type) -> list[str]:
    """Rewrite `--pretrained True`, as Azure ML passes a boolean, and `False`.

    The latter goes if it is the default, and becomes `--no-…` otherwise.
    """
    defaults = {
        option.name: option.default
        for option in options_in(command)
        if isinstance(option.default, bool)
    }
    rewritten = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        name = argument.removeprefix("--").replace("-", "_")
        is_switch = argument.startswith("--") and name in defaults
        if not is_switch or not rest or rest[0].lower() not in ("true", "false"):
            rewritten.append(argument)
            continue
        is_on = rest.pop(0).lower() == "true"
        if is_on != defaults[name]:
            rewritten.append(argument if is_on else f"--no-{argument[2:]}")
    return rewritten
