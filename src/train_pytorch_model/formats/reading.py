"""Bounded reading of untrusted files, inside their directory; what was meant by a path that is not
there.
"""

import difflib
import hashlib
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec
import yaml

META = "_meta.yaml"
INCOMPLETE = "_incomplete"
MAX_YAML_BYTES = 1 << 20
MAX_YAML_BRACKETS = 50  # nested; parsing time grows with the square of the depth
MAX_JSON_BYTES = 64 << 20
MAX_LINE_BYTES = 1 << 20
MAX_SIBLINGS = 10_000  # names that are compared with one that is missing
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # at least two letters: `C:` is a drive
NOT_JSON = (msgspec.DecodeError, RecursionError, UnicodeError)

T = TypeVar("T")


class MalformedFileError(Exception):
    """A file is invalid. The text names the file and the problem; the caller adds the directory."""


class _PlainLoader(yaml.SafeLoader):
    """YAML with bounded nesting and without aliases: 300 bytes of them can expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(
                None, None, "aliases are not supported", event.start_mark
            )
        return super().compose_node(parent, index)

    def fetch_flow_collection_start(self, token: type[yaml.Token]) -> None:
        if self.flow_level == MAX_YAML_BRACKETS:
            problem = f"more than {MAX_YAML_BRACKETS} nested brackets"
            raise yaml.scanner.ScannerError(None, None, problem, self.get_mark())
        super().fetch_flow_collection_start(token)


def read_yaml(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML file. Raises `MalformedFileError`."""
    data = read_bounded(path, MAX_YAML_BYTES)
    try:
        document = yaml.load(data, _PlainLoader)
    except (
        Exception
    ) as error:  # a tag on an unsuitable value raises whatever its constructor raises
        raise MalformedFileError(f"{path.name} is not valid YAML: {one_line(error)}.") from error
    if isinstance(document, dict):
        return document
    kind = {type(None): "nothing", list: "a list", str: "a string"}.get(
        type(document), "a single value"
    )
    raise MalformedFileError(
        f"{path.name} should hold a mapping of keys to values but holds {kind}."
    )


def read_meta(root: Path, type_name: str) -> dict[str, Any]:
    """Read `_meta.yaml` of a complete directory of type `type_name`.

    Raises `MalformedFileError`.
    """
    if os.path.exists(root / INCOMPLETE):
        raise MalformedFileError(f"it is incomplete: {INCOMPLETE} is present.")
    meta = read_yaml(root / META)
    if meta.get("type") != type_name:
        raise MalformedFileError(f"{META} says type {meta.get('type')!r}, expected {type_name!r}.")
    return meta


def read_json(path: Path, kind: type[T]) -> T:
    """Read the value in a JSON file, checked against `kind`. Raises `MalformedFileError`."""
    data = read_bounded(path, MAX_JSON_BYTES).removeprefix(BOM_UTF8)  # as Windows editors write it
    try:
        return msgspec.json.decode(data, type=kind)
    except NOT_JSON as error:
        raise MalformedFileError(f"{path.name} is not as expected: {one_line(error)}.") from error


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a regular file of at most `limit` bytes. Raises `MalformedFileError`."""
    try:
        if not path.is_file():
            raise MalformedFileError(f"{path.name} is missing.")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise MalformedFileError(f"{path.name} cannot be read: {error.strerror}.") from error
    if len(data) > limit:
        raise MalformedFileError(f"{path.name} is larger than {limit:,} bytes.")
    return data


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield stripped lines that are not blank, and their numbers from 1.

    Raises `MalformedFileError`.
    """
    try:
        with path.open("rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), 1):
                if len(line) > MAX_LINE_BYTES:
                    reason = f"{path.name}:{number}: more than {MAX_LINE_BYTES:,} bytes in a line."
                    raise MalformedFileError(reason)
                if line := line.removeprefix(BOM_UTF8).strip():
                    yield number, line
    except OSError as error:
        raise MalformedFileError(f"it cannot be read: {error.strerror}.") from error


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hexadecimal. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_inside(root: Path, name: str) -> Path:
    """Return `root / name` for a regular file inside `root`, links resolved.

    Raises `MalformedFileError`.
    """
    path = root / name
    if not is_inner_path(name):
        raise MalformedFileError(f"{name!r} is not a path inside the directory.")
    if not is_really_inside(root, path):
        raise MalformedFileError(f"{name!r} is a link that points outside the directory.")
    if not os.path.isfile(path):
        raise MalformedFileError(f"{name} is missing.")
    if not os.access(path, os.R_OK):
        raise MalformedFileError(f"{name} cannot be read: Permission denied.")
    return path


def named_file(root: Path, meta: Mapping[str, Any], key: str) -> Path:
    """Return the file that `_meta.yaml` names under `key`. Raises `MalformedFileError`."""
    if not isinstance(meta.get(key), str):
        raise MalformedFileError(f"{META} does not name its {key}.")
    return file_inside(root, meta[key])


def is_inner_path(name: str) -> bool:
    """Whether a path is relative and stays inside its base directory, judged by its text alone."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # an unpaired surrogate cannot be encoded as a file name
        return False
    path = PurePosixPath(name)
    return (
        bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name
    )


def is_really_inside(root: Path, path: Path) -> bool:
    """Whether `path` is below `root` after resolving links; `Path.resolve` would raise for link
    cycles.
    """
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def one_line(error: Exception) -> str:
    """Return the text of an error, or else its type, in at most 200 characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def explain_missing(path: Path, kind: str = "directory") -> str:
    """Return the problem with a path that does not exist, and what was probably meant; `kind` is
    expected.
    """
    address = ADDRESS.match(str(path))
    scheme = address[1].lower() if address else ""
    if scheme in ("azureml", "amldatastore"):
        return (
            "data of Azure ML exists in its jobs only: `submit` takes such a name. Here, download"
            " the data"
            f" and name the {kind}."
        )
    if scheme == "file":
        return f"it is a URL. Name the path, {str(path)[5:].replace('//', '/')!r}."
    if scheme:
        return f"it is a URL, and nothing is fetched from the network. Download it and name the {kind}."
    return " ".join([f"there is no such {kind}.", *islice(_guesses(path), 1)])


def _guesses(path: Path) -> Iterator[str]:
    """Yield sentences about what was meant, the most likely one first."""
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
    # What the first folder of the path that is missing may be called instead.
    parts = path.absolute().parts
    for depth in range(1, len(parts)):
        parent, name = Path(*parts[:depth]), parts[depth]
        if os.path.exists(parent / name):
            continue
        siblings: dict[str, str] = {}
        with suppress(OSError), os.scandir(parent) as entries:
            siblings = {
                entry.name.casefold(): entry.name for entry in islice(entries, MAX_SIBLINGS)
            }
        for close in difflib.get_close_matches(name.casefold(), siblings, n=1):
            found = Path(*parts[:depth], siblings[close], *parts[depth + 1 :])
            yield f"Did you mean {(str(found) if path.is_absolute() else os.path.relpath(found))!r}?"
        if depth < len(parts) - 1:
            yield f"{str(parent)!r} exists, but there is no {name!r} in it."
        return
