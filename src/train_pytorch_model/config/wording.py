"""How messages are worded: numbers with nouns, lists, and parameters by the names that a user gives."""

from collections.abc import Callable, Sequence

MAX_LISTED_PROBLEMS = 10
MAX_REASON = 200  # characters
_STYLE: list[Callable[[str], str]] = ["`{}`".format]


def out_of_range(parameter: str, rule: str, flag: str, value: object) -> str:
    """The designer's sentence about a parameter; `rule` is, for example, "greater than 0"."""
    return f'Parameter "{parameter}" value should be {rule}: {flag} is {value}.'


def bulleted(problems: Sequence[str]) -> str:
    """Problems as one text: the first ten, one per line, and the number of the rest."""
    rest = len(problems) - MAX_LISTED_PROBLEMS
    lines = [*problems[:MAX_LISTED_PROBLEMS], *([f"and {rest} more"] if rest > 0 else [])]
    return "".join(f"\n  {line}" for line in lines)


def counted(count: int, one: str, more: str) -> str:
    """Return `1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else more}"


def parameter(name: str) -> str:
    """Return a parameter's name as the user gives it: in Python, or as an option after
    `name_parameters`.
    """
    assert name.isidentifier(), f"{name} is an option, not a parameter"
    return _STYLE[0](name)


def name_parameters(style: Callable[[str], str]) -> None:
    """Have the messages of this process name parameters in this way."""
    _STYLE[0] = style


def reason_of(error: Exception) -> str:
    """What went wrong, in one line of bounded length."""
    if isinstance(error, OSError) and error.errno is not None:
        return str(error)
    return f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON]}"


# The component's documented name, kept for the flag and the port, where it differs from the
# field's.
WARMUP_FLAG = "warmup-step-number"


def display_name(field_name: str) -> str:
    """The parameter's name in the designer: `batch_size` → `Batch size`."""
    return flag(field_name)[2:].replace("-", " ").capitalize()


def flag(field_name: str) -> str:
    """The command-line flag of a field: `epochs` → `--epochs`."""
    name = WARMUP_FLAG if field_name == "warmup_epochs" else field_name.replace("_", "-")
    return f"--{name}"
