"""The values that a Python program gives for parameters, checked against their types."""

import os
import reprlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec

from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import ParameterError

_NOUNS: Mapping[type, str] = {
    int: "an integer",
    float: "a number",
    str: "a text",
    Path: "a path",
}
_PLURALS: Mapping[type, str] = {int: "integers", float: "numbers", str: "texts"}


def typed_values(values: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values as their parameters' types, such as paths for texts.

    NumPy's numbers and arrays become Python's. Raises `ParameterError` with every value that is of
    another type, or none of those that can be chosen.
    """
    typed = {}
    problems = []
    for name, value in values.items():
        try:
            typed[name] = _typed(value, types[name])
        except msgspec.ValidationError:
            expected = _either(list(_expected(types[name])))
            problems.append(f"{parameter(name)} should be {expected}; it is {reprlib.repr(value)}.")
    if problems:
        raise ParameterError("\n".join(problems))
    return typed


def path_of(name: str, value: Any) -> Path:
    """Return the path that is given for a parameter. Raises `ParameterError`."""
    path: Path = typed_values({name: value}, {name: Path})[name]
    return path


def _typed(value: Any, kind: Any) -> Any:
    """Return a value as its type. Raises `msgspec.ValidationError`."""
    is_path = kind is Path or Path in get_args(kind)
    if is_path and isinstance(value, str | os.PathLike):
        return Path(value)
    # msgspec does not know NumPy.
    plain = value.tolist() if hasattr(value, "tolist") else value
    return msgspec.convert(plain, kind)


def _expected(kind: Any) -> Iterator[str]:
    """Yield in words what a value of this type may be; None is what is left out."""
    if kind in _NOUNS:
        yield _NOUNS[kind]
    elif kind is bool:
        yield from ("True", "False")
    elif get_origin(kind) is Literal:
        yield from map(repr, get_args(kind))
    elif get_origin(kind) is tuple:
        parts = get_args(kind)
        count = "" if Ellipsis in parts else f"{len(parts)} "
        yield f"{count}{_PLURALS[parts[0]]}"
    else:
        for part in get_args(kind):
            if part is not NoneType:
                yield from _expected(part)


def _either(choices: list[str]) -> str:
    """Return "a, b or c"."""
    *others, last = choices
    return f"{', '.join(others)} or {last}" if others else last
