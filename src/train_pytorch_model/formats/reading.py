"""Bounded reading of untrusted files, inside their directory."""

import hashlib
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
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
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # at least two letters: `C:` is a drive
AZURE_SCHEMES = ("azureml", "amldatastore")
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
    except Exception as error:
        # A tag on an unsuitable value raises whatever its constructor raises.
        raise MalformedFileError(f"{path.name} is not valid YAML: {one_line(error)}.") from error
    if isinstance(document, dict):
        return document
    kinds = {type(None): "nothing", list: "a list", str: "a string"}
    kind = kinds.get(type(document), "a single value")
    raise MalformedFileError(
        f"{path.name} should hold a mapping of keys to values but holds {kind}."
    )


def read_meta(root: Path, type_name: str) -> dict[str, Any]:
    """Read `_meta.yaml` of a complete directory of type `type_name`.

    Raises `MalformedFileError`.
    """
    if os.path.exists(root / INCOMPLETE):
        raise MalformedFileError(f"it is incomplete: {INCOMPLETE} is present.")
    if os.path.lexists(root / META) and not is_really_inside(root, root / META):
        raise MalformedFileError(f"{META} is a link that points outside the directory.")
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
            number = 0
            while line := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    reason = f"{path.name}:{number}: more than {MAX_LINE_BYTES:,} bytes in a line."
                    raise MalformedFileError(reason)
                stripped = line.removeprefix(BOM_UTF8).strip()
                if stripped:
                    yield number, stripped
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
    """Return whether a path is relative and stays inside its base directory, by its text alone."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # an unpaired surrogate cannot be encoded as a file name
        return False
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute():
        return False
    return ".." not in path.parts and "\0" not in name


def is_really_inside(root: Path, path: Path) -> bool:
    """Return whether `path` is below `root` after resolving links."""
    # `Path.resolve` would raise for link cycles.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def one_line(error: Exception) -> str:
    """Return the text of an error, or else its type, in at most 200 characters."""
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def scheme_of(address: str) -> str:
    """Return the scheme of a URL in lower case, such as `https`; empty for a path."""
    match = ADDRESS.match(address)
    return match[1].lower() if match else ""
