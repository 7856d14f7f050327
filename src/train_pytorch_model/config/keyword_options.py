"""The options of a verb as keyword arguments of a Python function: its signature, other names."""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import Field
from typing import Any

from train_pytorch_model.config.foreign_options import MEANINGS, REMARKS
from train_pytorch_model.errors import ParameterError


def set_signature(
    function: Callable[..., Any], options: Iterable[Field[Any]], types: Mapping[str, Any]
) -> None:
    """Give a function the signature with each option, its type and default, for `help`.

    They take the place of its last parameter, which takes any name.
    """
    signature = inspect.signature(function)
    *named, _ = signature.parameters.values()
    keywords = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=types[option.name],
        )
        for option in options
    ]
    changed = signature.replace(parameters=[*named, *keywords])
    function.__signature__ = changed  # type: ignore[attr-defined]  # of `inspect`


def require_known(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ParameterError` for an option that a function does not have, with those meant."""
    names = list(known)
    for name in given:
        if name in names:
            continue
        meant = [field for field in MEANINGS.get(name, ()) if field in names]
        if not meant:
            meant = difflib.get_close_matches(name, names, n=1)
        hint = f": {REMARKS[name]}" if name in REMARKS else "."
        for option in meant:
            hint += f" Did you mean {option!r}?"
        raise ParameterError(f"{function} has no option {name!r}{hint}")
