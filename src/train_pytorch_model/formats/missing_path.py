"""What was probably meant by a path that does not exist."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from train_pytorch_model.formats.reading import AZURE_SCHEMES, scheme_of

MAX_SIBLINGS = 10_000  # names that are compared with one that is missing
QUOTES = " \t\r\n\"'“”"


def explain_missing(path: Path, kind: str = "directory") -> str:
    """Return the problem with a path that should be of a `kind`, and what was probably meant."""
    scheme = scheme_of(str(path))
    if scheme in AZURE_SCHEMES:
        return (
            "data of Azure ML exists in its jobs only: `submit` takes such a name. Here, download"
            f" the data and name the {kind}."
        )
    if scheme == "file":
        return f"it is a URL. Name the path, {str(path)[5:].replace('//', '/')!r}."
    if scheme:
        return (
            "it is a URL, and nothing is fetched from the network."
            f" Download it and name the {kind}."
        )
    guess = next(chain(_guesses_by_spelling(path), _guesses_by_siblings(path)), "")
    return f"there is no such {kind}. {guess}".rstrip()


def _guesses_by_spelling(path: Path) -> Iterator[str]:
    """Yield sentences about what is wrong with a path, the most likely one first."""
    text = str(path)
    if os.path.islink(path):  # noqa: PTH114, False for a name too long
        target = os.readlink(path)  # noqa: PTH115, as written
        yield f"It is a link to {target!r}, which does not exist."
    if text.startswith("~"):
        expanded = os.path.expanduser(path)  # noqa: PTH111
        yield f"A shell replaces ~ outside of quotes only: write {expanded!r}."
    if "$" in text or re.search("%[A-Za-z]+%", text):
        yield "It has a variable that the shell has not replaced; in single quotes, none does."
    if "*" in text or "?" in text:
        yield "It has a wildcard that matches nothing, or is in quotes."
    if "\\" in text and os.sep == "/":
        with_slashes = text.replace("\\", "/")
        yield f"Here, folders are separated by slashes: {with_slashes!r}."
    bare = text.strip(QUOTES)
    if text != bare:
        yield (
            f"The name {text!r} has blanks, line ends or quotation marks; without them it is"
            f" {bare!r}."
        )


def _guesses_by_siblings(path: Path) -> Iterator[str]:
    """Yield what the first folder of the path that is missing may be called instead."""
    parts = path.absolute().parts
    for depth in range(1, len(parts)):
        parent = Path(*parts[:depth])
        name = parts[depth]
        if os.path.exists(parent / name):
            continue
        sibling = _similar_name(parent, name)
        if sibling:
            meant = Path(parent, sibling, *parts[depth + 1 :])
            shown = str(meant) if path.is_absolute() else os.path.relpath(meant)
            yield f"Did you mean {shown!r}?"
        if depth < len(parts) - 1:
            yield f"{str(parent)!r} exists, but there is no {name!r} in it."
        return


def _similar_name(folder: Path, name: str) -> str:
    """Return the name in a folder that is most like a name; empty if none is."""
    names: dict[str, str] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, MAX_SIBLINGS):
            names[entry.name.casefold()] = entry.name
    closest = difflib.get_close_matches(name.casefold(), names, n=1)
    return names[closest[0]] if closest else ""
