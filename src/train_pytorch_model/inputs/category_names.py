"""Names of categories that may not be meant: one written in two ways, or several in one."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterator, Sequence

from train_pytorch_model.config.wording import MAX_LISTED_PROBLEMS

# Between the labels of an image with several: `birds;nice`.
_SEPARATORS = re.compile(r"[;,|]")
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])")


def spelling_warnings(categories: Sequence[str]) -> Iterator[str]:
    """Yield a warning of names that differ in spelling only, and one of names that join others."""
    alike = defaultdict(list)
    for name in categories:
        alike[spelled_alike(name)].append(repr(name))
    groups = [" and ".join(names) for names in alike.values() if len(names) > 1]
    if groups:
        yield (
            "categories that differ in capitals, blanks or the like only, probably one written in"
            f" several ways: {_some(groups)}. Each is learned as a category of its own. If one is"
            " meant, give all its images the same name."
        )
    joined = [repr(name) for name in categories if _joins_others(name, alike)]
    if joined:
        yield (
            f"categories that look like several labels: {_some(joined)}. Each is learned as a"
            " category of its own, because an image has one. Keep one label for each image."
        )


def written_otherwise(names: Sequence[str], others: Sequence[str]) -> str:
    """Return which names are among others in another spelling; empty if none is."""
    other_of = {spelled_alike(other): other for other in others}
    pairs = [
        f"{name!r} is {other_of[spelled_alike(name)]!r} there"
        for name in names
        if spelled_alike(name) in other_of
    ]
    return f"Written in another way: {_some(pairs)}." if pairs else ""


def spelled_alike(name: str) -> str:
    """Return a key that names which read the same share: `Snow-Leopard `, `snow leopard`."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return _BETWEEN_WORDS.sub(" ", folded).strip(" _") or folded


def _joins_others(name: str, keys: "defaultdict[str, list[str]]") -> bool:
    """Return whether a name consists of several, one of which is another category."""
    labels = [label for label in _SEPARATORS.split(name) if label.strip()]
    return len(labels) > 1 and any(spelled_alike(label) in keys for label in labels)


def _some(names: Sequence[str]) -> str:
    more = ["…"] if len(names) > MAX_LISTED_PROBLEMS else []
    return ", ".join([*names[:MAX_LISTED_PROBLEMS], *more])
