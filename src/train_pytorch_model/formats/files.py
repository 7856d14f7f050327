"""Bounded reading of untrusted files; writing in which no partial result looks complete."""

import errno
import hashlib
import json
import os
import shutil
import time
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import msgspec
import yaml

from train_pytorch_model.errors import OutputDirectoryError, UnfinishedOutputError

META = "_meta.yaml"
INCOMPLETE = "_incomplete"
MAX_YAML_BYTES = 1 << 20
MAX_YAML_BRACKETS = 50  # nested; parsing time grows with the square of the depth
MAX_JSON_BYTES = 64 << 20
CHUNK_BYTES = 1 << 20  # read or copied at a time
READ_BACK_AFTER_S = (0.0, 0.2, 0.8, 4.0, 10.0, 15.0)  # pauses; half a minute in all, after hours of training

T = TypeVar("T")


class MalformedFileError(Exception):
    """A file is invalid. The text names the file and the problem; the caller adds the directory."""


class _PlainLoader(yaml.SafeLoader):
    """YAML with bounded nesting and without aliases: 300 bytes of them can expand to gigabytes."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.events.AliasEvent):
            event = self.peek_event()  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases are not supported", event.start_mark)
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
    except Exception as error:  # a tag on an unsuitable value raises whatever its constructor raises
        raise MalformedFileError(f"{path.name} is not valid YAML: {_one_line(error)}.") from error
    if not isinstance(document, dict):
        raise MalformedFileError(
            f"{path.name} should hold a mapping of keys to values but holds {_kind(document)}."
        )
    return document


def read_meta(root: Path, type_name: str) -> dict[str, Any]:
    """Read `_meta.yaml` of a complete directory of type `type_name`. Raises `MalformedFileError`."""
    if (root / INCOMPLETE).exists():
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
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise MalformedFileError(f"{path.name} is not as expected: {_one_line(error)}.") from error


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


def sha256_of(path: Path) -> str:
    """The sha256 of a file, in hexadecimal. Raises `OSError`."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_inside(root: Path, name: str) -> Path:
    """`root / name`, for a regular file inside `root` after resolving links. Raises `MalformedFileError`."""
    if not is_inner_path(name):
        raise MalformedFileError(f"{name!r} is not a path inside the directory.")
    path = root / name
    if not is_really_inside(root, path):
        raise MalformedFileError(f"{name!r} is a link that points outside the directory.")
    if not os.path.isfile(path):  # noqa: PTH113, False for a name too long, where Path.is_file raises
        raise MalformedFileError(f"{name} is missing.")
    return path


def is_inner_path(name: str) -> bool:
    """Whether a path is relative and stays inside its base directory, judged by its text alone."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # an unpaired surrogate cannot be encoded as a file name
        return False
    path = PurePosixPath(name)
    return bool(path.parts) and not path.is_absolute() and ".." not in path.parts and "\0" not in name


def is_really_inside(root: Path, path: Path) -> bool:
    """Whether `path` is below `root` after resolving links; `Path.resolve` would raise for link cycles."""
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


def write_json(path: Path, value: object) -> None:
    """Write JSON as the classic components do: ASCII, indented by two."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=True), encoding="ascii")


def write_yaml(path: Path, value: Mapping[str, Any]) -> None:
    """Write YAML as the classic components do: ASCII, block style, keys in the order given."""
    path.write_text(_yaml(value))


def _yaml(value: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(value), sort_keys=False, allow_unicode=False, width=1000)


def write_durably(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file atomically: complete or absent, even after a power loss. Raises `OSError`.

    The directory entry is synced by `sync_folder`, once for several files.
    """
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        if not _holds(part, pieces):  # some mounts report failed writes only later, or never
            raise OSError(errno.EIO, "the file reads back differently from what was written", str(path))
        part.replace(path)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def sync_tree(root: Path) -> None:
    """Flush all files of a directory to storage, to survive a power loss. Raises `OSError`."""
    for path in root.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(root)


def copy_tree(source: Path, target: Path, last: str) -> None:
    """Copy a directory's files, one by one, into an existing directory; the file named `last` comes last.

    Uses plain writes, which are read back: a mounted output supports no renames and no permissions, and may
    show writes, or report failed ones, with a delay. Raises `OSError`.
    """
    paths = sorted(source.rglob("*"), key=lambda path: (path.name == last, path))
    for path in paths:
        copy = target / path.relative_to(source)
        if path.is_dir():
            copy.mkdir(exist_ok=True)
        else:
            _copy_file(path, copy)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as original, target.open("wb") as copy:
        shutil.copyfileobj(original, copy, CHUNK_BYTES)
        copy.flush()
        os.fsync(copy.fileno())
    expected = sha256_of(source)
    _read_back(target, lambda: sha256_of(target) == expected)


def _read_back(path: Path, is_right: Callable[[], bool]) -> None:
    """Wait until a file reads back as written; a mount may show it late. Raises `OSError` otherwise."""
    for pause_s in READ_BACK_AFTER_S:
        time.sleep(pause_s)
        with suppress(FileNotFoundError):
            if is_right():
                return
    raise OSError(errno.EIO, "the file reads back differently from what was written", str(path))


def sync_folder(path: Path) -> None:
    """Flush the entries of a folder to storage, if its mount supports that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check_output(path: Path, flag: str, by_writing: bool = True, token: str = "") -> None:
    """Raise `OutputDirectoryError` unless `path` can become an output directory; leaves nothing behind.

    Of several processes, one tests it `by_writing` and the others only inspect it. An unfinished output of a
    writer with the same `token` is accepted.
    """
    try:
        entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        if not path.is_dir() and path.exists():
            raise OutputDirectoryError(f"{flag} {path} is a file. Name a directory that is new or empty.")
        if is_unfinished(path, token):
            return
        if INCOMPLETE in entries and len(entries) > 1:
            raise OutputDirectoryError(
                f"{flag} {path} holds an unfinished result ({INCOMPLETE} is present) of a program that was"
                " stopped. Delete the directory, or name another."
            )
        if entries not in ([], [INCOMPLETE]):  # alone, it is another process's write test, or an empty output
            raise OutputDirectoryError(
                f"{flag} {path} is not empty: it holds {', '.join(entries[:3])}"
                f"{' …' if len(entries) > 3 else ''}. Nothing is ever overwritten;"
                " name a directory that is new or empty."
            )
        if by_writing:
            _try_writing(path)
    except OSError as error:
        raise OutputDirectoryError(
            f"{flag} {path} cannot be written: {error.strerror or error}."
            " Name a directory that is new or empty."
        ) from error


def check_apart(path: Path, flag: str, other: Path, other_flag: str) -> None:
    """Raise `OutputDirectoryError` if the output `path` is the directory `other` or inside it."""
    real, other_real = os.path.realpath(path), os.path.realpath(other)
    if Path(real).is_relative_to(other_real):
        relation = "the same as" if real == other_real else "inside"
        raise OutputDirectoryError(
            f"{flag} {path} is {relation} {other_flag} {other}. Name a directory that is elsewhere."
        )


def is_unfinished(path: Path, token: str) -> bool:
    """Whether a directory was started, and not finished, by a writer with this token."""
    try:
        return bool(token) and (path / INCOMPLETE).read_text(errors="replace") == token
    except OSError:
        return False


@contextmanager
def writing_directory(path: Path, meta: Mapping[str, Any], flag: str, token: str = "") -> Iterator[Path]:
    """Open the new or empty directory `path` for the caller to fill; writing `_meta.yaml` completes it.

    Until then it is marked by the file `_incomplete`, with the `token` of a writer that may resume. On an
    error, everything written and the directories created for it are removed. Raises `OutputDirectoryError` if
    it is not empty, and its subclass `UnfinishedOutputError` if it cannot be created or filled.
    """
    check_output(path, flag, token=token)
    if is_unfinished(path, token):
        empty_directory(path)
    made = missing_directories(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / INCOMPLETE).write_text(token)
        yield path
        write_yaml(path / META, meta)
        _read_back(path / META, lambda: (path / META).read_text() == _yaml(meta))
        (path / INCOMPLETE).unlink()
    except OSError as error:
        remove_output(path, made)
        raise UnfinishedOutputError(
            f"{flag} {path} cannot be finished, and nothing is left of it: {error}."
        ) from error
    except BaseException:
        remove_output(path, made)
        raise


def _try_writing(path: Path) -> None:
    made = missing_directories(path)
    path.mkdir(parents=True, exist_ok=True)
    probe = path / INCOMPLETE
    probe.touch()
    probe.unlink()
    for directory in made:
        directory.rmdir()


def missing_directories(path: Path) -> list[Path]:
    """The directories to create for `path` to exist, the innermost first: for `remove_output`."""
    return [directory for directory in (path, *path.parents) if not directory.exists()]


def remove_output(path: Path, made: Sequence[Path]) -> None:
    """Empty an output that cannot be finished, and remove the directories `made` for it."""
    empty_directory(path)
    with suppress(OSError):  # a directory that another process writes to stays
        for directory in made:
            directory.rmdir()


def empty_directory(path: Path) -> None:
    """Remove the content of an output that cannot be finished, as far as its storage allows.

    This can take a minute, and the program may be stopped meanwhile: what is left never looks complete.
    """
    mark = path / INCOMPLETE
    with suppress(OSError):
        mark.touch()
    with suppress(OSError):
        (path / META).unlink(missing_ok=True)
        for entry in path.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry != mark:
                entry.unlink(missing_ok=True)
        mark.unlink()


def _holds(path: Path, pieces: Sequence[bytes | memoryview]) -> bool:
    """Whether a file consists of these pieces. Read in parts: a second copy might not fit in memory."""
    found = bytearray(CHUNK_BYTES)  # compares with a memoryview by memcmp, where `bytes` is slower
    with path.open("rb") as file:
        for piece in pieces:
            for start in range(0, len(piece), CHUNK_BYTES):
                expected = memoryview(piece)[start : start + CHUNK_BYTES]
                size = file.readinto(memoryview(found)[: len(expected)])
                if found[:size] != expected:
                    return False
        return not file.read(1)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _kind(value: object) -> str:
    return {type(None): "nothing", list: "a list", str: "a string"}.get(type(value), "a single value")
