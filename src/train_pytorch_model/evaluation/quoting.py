"""Names of categories in sentences."""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import PerClass

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


def about_never(per_class: PerClass, categories: Sequence[str], what: str) -> str:
    """Return a sentence about the categories that are never `what`; empty without any."""
    present = np.flatnonzero(per_class.support)
    never = present[per_class.predicted[present] == 0]
    if len(never) == 0:
        return ""
    named = quoted_list([categories[index] for index in never])
    verb = "is" if len(never) == 1 else "are"
    total = counted(len(present), "category", "categories")
    return f"{len(never):,} of {total} {verb} never {what}: {named}."
