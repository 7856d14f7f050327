"""How things are put into words: numbers, and the names of parameters."""

from collections.abc import Callable

MAX_REASON = 200  # characters

_STYLE: list[Callable[[str], str]] = ["`{}`".format]


def counted(count: int, one: str, more: str) -> str:
    """Return `1 image`, `2,000 images`."""
    return f"{count:,} {one if count == 1 else more}"


def parameter(name: str) -> str:
    """Return a parameter's name as the user of this process gives it.

    That is `learning_rate` in Python, and on the command line, which has called `name_parameters`,
    --learning-rate. So nothing below `commands` needs to know the options.
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
