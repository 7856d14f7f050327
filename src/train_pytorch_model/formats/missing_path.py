"""What was probably meant by a path that does not exist: for the errors of inputs."""

import difflib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path

MAX_SIBLINGS = 10_000  # names that are compared with the one that is missing
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # at least two letters: `C:` is a drive


def explain_missing(path: Path, kind: str = "directory") -> str:
    """Return the problem with a path that does not exist, and what was probably meant; `kind` is expected."""
    address = ADDRESS.match(str(path))
    scheme = address[1].lower() if address else ""
    if scheme in ("azureml", "amldatastore"):
        return (
            "data of Azure ML exists in its jobs only: `submit` takes such a name. Here, download the data"
            f" and name the {kind}."
        )
    if scheme == "file":
        return f"it is a URL. Name the path, {str(path)[5:].replace('//', '/')!r}."
    if scheme:
        return f"it is a URL, and nothing is fetched from the network. Download it and name the {kind}."
    return " ".join([f"there is no such {kind}.", *islice(_guesses(path), 1)])


def _guesses(path: Path) -> Iterator[str]:
    """Yield sentences, the most likely one first."""
    text = str(path)
    if os.path.islink(path):  # noqa: PTH114, False for a name too long
        yield f"It is a link to {os.readlink(path)!r}, which does not exist."  # noqa: PTH115, as written
    if text.startswith("~"):
        yield f"A shell replaces ~ outside of quotes only: write {os.path.expanduser(path)!r}."  # noqa: PTH111
    if "$" in text or re.search("%[A-Za-z]+%", text):
        yield "It has a variable that the shell has not replaced; in single quotes, none does."
    if "*" in text or "?" in text:
        yield "It has a wildcard that matches nothing, or is in quotes."
    if "\\" in text and os.sep == "/":
        yield f"Here, folders are separated by slashes: {text.replace(chr(92), '/')!r}."
    if text != (bare := text.strip(" \t\r\n\"'“”")):
        yield f"The name {text!r} has blanks, line ends or quotation marks; without them it is {bare!r}."
    yield from _near_misses(path)


def _near_misses(path: Path) -> Iterator[str]:
    """Yield what the first folder of the path that is missing may be called instead."""
    parts = path.absolute().parts
    for depth in range(1, len(parts)):
        parent, name = Path(*parts[:depth]), parts[depth]
        if os.path.exists(parent / name):  # noqa: PTH110, False for a name too long
            continue
        siblings: dict[str, str] = {}
        with suppress(OSError), os.scandir(parent) as entries:
            siblings = {entry.name.casefold(): entry.name for entry in islice(entries, MAX_SIBLINGS)}
        for close in difflib.get_close_matches(name.casefold(), siblings, n=1):
            found = Path(*parts[:depth], siblings[close], *parts[depth + 1 :])
            yield f"Did you mean {(str(found) if path.is_absolute() else os.path.relpath(found))!r}?"
        if depth < len(parts) - 1:
            yield f"{str(parent)!r} exists, but there is no {name!r} in it."
        return
