"""Names of categories in sentences."""

from collections.abc import Sequence

MAX_NAMED = 3  # categories
MAX_NAME = 60  # characters


def quote(name: str) -> str:
    """Return a name in quotes, shortened if it is long."""
    shortened = name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…"
    return repr(shortened)


def quoted_list(names: Sequence[str]) -> str:
    """Return the first names in quotes, and how many more there are."""
    named = ", ".join(map(quote, names[:MAX_NAMED]))
    if len(names) > MAX_NAMED:
        named += f" and {len(names) - MAX_NAMED:,} more"
    return named
