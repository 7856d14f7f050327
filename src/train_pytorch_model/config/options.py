"""Options as fields of dataclasses: their types on the command line, and groups of them."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import tyro

from train_pytorch_model.config.wording import flag

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


def shown_as(metavar: str) -> Any:
    """Return how `--help` shows the value of an option that may be left out: without a default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


Switch = Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help_behavior_hint="")]
"""A flag that is off unless given: `--quiet`, without a `--no-quiet`."""
OptionalPath = Annotated[Path | None, shown_as("PATH")]
OptionalInt = Annotated[int | None, shown_as("INT")]
OptionalFloat = Annotated[float | None, shown_as("FLOAT")]
OptionalName = Annotated[str | None, shown_as("NAME")]


def options_in(kind: type) -> Iterator[Field[Any]]:
    """Yield the options of a dataclass, including those of its groups."""
    for option in fields(kind):
        group = _group_of(option)
        if group is not None:
            yield from options_in(group)
        else:
            yield option


def assemble(kind: type[D], values: Mapping[str, Any]) -> D:
    """Return a dataclass, with its groups, in which the options have these values."""
    arguments = {}
    for option in fields(kind):
        group = _group_of(option)
        if group is not None:
            arguments[option.name] = assemble(group, values)
        elif option.name in values:
            arguments[option.name] = values[option.name]
    return kind(**arguments)


def arguments_of(
    options: "DataclassInstance", kind: "type[DataclassInstance] | None" = None
) -> Iterator[str]:
    """Yield a command line of the options that differ from their defaults; only those of `kind`."""
    for option in fields(kind or options):
        value = getattr(options, option.name)
        if is_dataclass(value) and not isinstance(value, type):
            yield from arguments_of(value)
        elif value == option.default:
            continue
        elif isinstance(option.default, bool):
            yield flag(option.name) if value else f"--no-{flag(option.name)[2:]}"
        else:
            yield flag(option.name)
            yield from map(str, value if isinstance(value, tuple) else (value,))


def _group_of(option: Field[Any]) -> "type[DataclassInstance] | None":
    """Return the dataclass whose options an option stands for; None if it is one itself."""
    factory = option.default_factory
    if factory is not MISSING and is_dataclass(factory):
        return cast("type[DataclassInstance]", factory)
    return None
