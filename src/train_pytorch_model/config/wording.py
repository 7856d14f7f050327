"""How messages are worded: numbers with nouns, lists, parameters by the names that a user gives."""

import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

MAX_LISTED_PROBLEMS = 10
MAX_REASON = 200  # characters

# Unicode's categories of what moves a cursor, breaks a line or is no character. Joiners, which
# emoji and Persian names need, are in another.
HIDDEN = ("Cc", "Cs", "Zl", "Zp")
# Characters that turn the direction of the text around them.
TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"

# The component's documented name, kept for the flag and the port, where it differs from the
# field's.
WARMUP_FLAG = "warmup-step-number"

FIT_NAMES = {"trained_model": "output"}  # parameters of `train` that `fit` calls otherwise
POSITIONAL = frozenset({"folder"})  # parameters that have no flag

_IS_FOR_FIT: ContextVar[bool] = ContextVar("is_for_fit", default=False)
_IS_FOR_COMMAND_LINE: ContextVar[bool] = ContextVar("is_for_command_line", default=False)


@contextmanager
def for_command_line(is_for_it: bool = True) -> Iterator[None]:
    """Have messages speak of options and verbs rather than of Python's parameters, for a `with`.

    A thread that is started within it has to be given the context, as `in_thread` does.
    """
    token = _IS_FOR_COMMAND_LINE.set(is_for_it)
    try:
        yield
    finally:
        _IS_FOR_COMMAND_LINE.reset(token)


@contextmanager
def for_fit() -> Iterator[None]:
    """Have messages name the parameters of `fit`, which does several verbs' work, for a `with`."""
    token = _IS_FOR_FIT.set(True)
    try:
        yield
    finally:
        _IS_FOR_FIT.reset(token)


def worded(command_line: str, python: str) -> str:
    """Return the words for the door through which the user has come."""
    return command_line if _IS_FOR_COMMAND_LINE.get() else python


def parameter(name: str) -> str:
    """Return a parameter's name as the user gives it: `--epochs`, or `epochs` in backticks."""
    assert name.isidentifier(), f"{name} is an option, not a parameter"
    if _IS_FOR_FIT.get():
        name = FIT_NAMES.get(name, name)
    return worded(name.upper() if name in POSITIONAL else flag(name), f"`{name}`")


def given_by(option: str) -> str:
    """Return a flag as the user gives its parameter: `--epochs`, or `epochs` in backticks."""
    renamed = {flag("warmup_epochs"): "warmup_epochs"}
    field_name = renamed.get(option, option.removeprefix("--").replace("-", "_"))
    return worded(option, f"`{field_name}`")


def for_fit_or(fit: str, others: str) -> str:
    """Return the words for a user of `fit`, or else for one of another verb."""
    return fit if _IS_FOR_FIT.get() else others


def with_init_model(command_line: str, alone: str) -> str:
    """Return the words for a user of `init-model`, or else for one of `fit` or of Python."""
    return alone if _IS_FOR_FIT.get() else worded(command_line, alone)


def assignment(name: str, value: object) -> str:
    """Return, in backticks, how the user sets a parameter: `--epochs 3`, or `epochs=3`."""
    return worded(f"`{flag(name)} {value}`", f"`{name}={value!r}`")


def quoted(name: str, verb: str = "") -> str:
    """Return a parameter in backticks, on the command line with the verb that has it, if named."""
    if _IS_FOR_FIT.get():
        name = FIT_NAMES.get(name, name)
        verb = ""
    return worded(f"`{verb} {flag(name)}`" if verb else f"`{flag(name)}`", f"`{name}`")


def flag(field_name: str) -> str:
    """Return the command-line flag of a field: `epochs` → `--epochs`."""
    name = WARMUP_FLAG if field_name == "warmup_epochs" else field_name.replace("_", "-")
    return f"--{name}"


def display_name(field_name: str) -> str:
    """Return the parameter's name in the designer: `batch_size` → `Batch size`."""
    return flag(field_name)[2:].replace("-", " ").capitalize()


def out_of_range(parameter: str, rule: str, flag: str, value: object) -> str:
    """Return the designer's sentence about a parameter; a rule is such as "greater than 0"."""
    return f'Parameter "{parameter}" value should be {rule}: {flag} is {value}.'


def bulleted(problems: Sequence[str]) -> str:
    """Return problems as one text: the first ten, one per line, and the number of the rest."""
    lines = list(map(visible, problems[:MAX_LISTED_PROBLEMS]))
    rest = len(problems) - len(lines)
    if rest:
        lines.append(f"and {rest} more")
    return "".join(f"\n  {line}" for line in lines)


def visible(name: str) -> str:
    """Return a name in one line of visible characters; others are written as `\\x1b` is.

    Such others are line breaks, escape sequences, and what turns the direction of text.
    """
    if name.isprintable():
        return name
    return "".join(map(_visible_character, name))


def visible_lines(text: str) -> str:
    """Return a text whose lines are like `visible` names."""
    return "\n".join(map(visible, text.split("\n")))


def _visible_character(character: str) -> str:
    is_hidden = unicodedata.category(character) in HIDDEN or character in TURNING
    return ascii(character)[1:-1] if is_hidden else character


def counted(count: int, one: str, more: str) -> str:
    """Return `1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else more}"


def reason_of(error: Exception) -> str:
    """Return what went wrong, in one line of bounded length."""
    if isinstance(error, OSError) and error.errno is not None:
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON]}"
