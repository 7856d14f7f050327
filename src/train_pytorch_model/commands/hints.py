"""What a command line probably meant, when it has a verb or options that there are not."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

from train_pytorch_model.config.foreign_options import OUTPUTS, REMARKS, meanings_of
from train_pytorch_model.config.wording import flag
from train_pytorch_model.errors import ParameterError

VERBS: Mapping[str, str] = {
    "predict": "score",
    "infer": "score",
    "inference": "score",
    "classify": "score",
    "test": "evaluate",
    "val": "evaluate",
    "validate": "evaluate",
    "eval": "evaluate",
    "finetune": "train",
    "fine-tune": "train",
    "resume": "train",
    "init": "init-model",
}
"""What other trainers call a verb → ours."""


def missing_verb(first: str, verbs: Sequence[str], prog: str) -> ParameterError:
    """Return the error for a command line that does not start with a verb."""
    if first.startswith("-"):
        problem = f'a verb comes before the options: "{prog} VERB {first} …".'
    else:
        problem = f'"{first}" is not a verb.'
        for verb in difflib.get_close_matches(VERBS.get(first.lower(), first), verbs, n=1):
            problem += f' Did you mean "{verb}"?'
    names = ", ".join(verbs)
    return ParameterError(
        f'{problem} The verbs are {names}; "{prog} VERB --help" lists the options of one.'
    )


def hints(
    arguments: Iterable[str], verb: str, options: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield a sentence about each option that `verb` lacks.

    `options` has the fields of every verb.
    """
    flags = [flag(field) for field in options[verb]]
    for argument in arguments:
        option = argument.partition("=")[0]
        name = option.lstrip("-").replace("-", "_").lower()
        is_ours = f"--{name.replace('_', '-')}" in flags
        if option.startswith("-") and name.isidentifier() and not is_ours:
            hint = _hint(option, name, verb, options)
            if hint:
                yield hint


def _hint(option: str, name: str, verb: str, options: Mapping[str, Sequence[str]]) -> str:
    """Return what an option that `verb` lacks may mean; an empty text if nobody has it."""
    if name in REMARKS:
        return f"{option} is not an option: {REMARKS[name]}"
    meanings = meanings_of(name)
    if "folder" in meanings and "folder" in options[verb]:
        return f"{option} is not an option here: name the folder alone."
    here = [flag(field) for field in meanings if field in options[verb]]
    if here and meanings == OUTPUTS:
        return f"{option} is {here[0]} here."
    if here:
        return f"{option} is {' or '.join(here)} here."
    return _hint_at_other_verbs(option, name, verb, options)


def _hint_at_other_verbs(
    option: str, name: str, verb: str, options: Mapping[str, Sequence[str]]
) -> str:
    """Return which verbs have the option, by the first of its meanings that one has."""
    for field in meanings_of(name):
        verbs = [other for other in options if field in options[other]]
        if verbs:
            called = option if field == name else f"{option} is {flag(field)} here, which"
            *others, last = verbs
            names = f"{', '.join(others)} and {last}" if others else last
            return f"{called} is not an option of {verb}, but of {names}."
    return ""
