"""Output directories: checked before the work, marked while they are filled, complete or gone at the end."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.writing import read_back, write_yaml, yaml_text
from train_pytorch_model.words.errors import OutputDirectoryError, UnfinishedOutputError
from train_pytorch_model.words.wording import parameter


def check_output(path: Path, name: str, by_writing: bool = True, token: str = "") -> None:
    """Raise `OutputDirectoryError` unless `path` can become an output directory; leaves nothing behind.

    `name` is the parameter that names it. Of several processes, one tests it `by_writing` and the others only
    inspect it. An unfinished output of a writer with the same `token` is accepted.
    """
    try:
        entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
        if not path.is_dir() and path.exists():
            raise OutputDirectoryError(
                f"{parameter(name)} {path} is a file. Name a directory that is new or empty."
            )
        if is_unfinished(path, token):
            return
        if INCOMPLETE in entries and len(entries) > 1:
            raise OutputDirectoryError(
                f"{parameter(name)} {path} holds an unfinished result ({INCOMPLETE} is present) of a"
                " program that was stopped. Delete the directory, or name another."
            )
        if entries not in ([], [INCOMPLETE]):  # alone, it is another process's write test, or an empty output
            raise OutputDirectoryError(
                f"{parameter(name)} {path} is not empty: it holds {', '.join(entries[:3])}"
                f"{' …' if len(entries) > 3 else ''}. Nothing is ever overwritten;"
                " name a directory that is new or empty."
            )
        if by_writing:
            _try_writing(path)
    except OSError as error:
        raise OutputDirectoryError(
            f"{parameter(name)} {path} cannot be written: {error.strerror or error}."
            " Name a directory that is new or empty."
        ) from error


def check_apart(path: Path, name: str, other: Path, other_name: str) -> None:
    """Raise `OutputDirectoryError` if the output `path` is the directory `other` or inside it."""
    real, other_real = os.path.realpath(path), os.path.realpath(other)
    if Path(real).is_relative_to(other_real):
        relation = "the same as" if real == other_real else "inside"
        raise OutputDirectoryError(
            f"{parameter(name)} {path} is {relation} {parameter(other_name)} {other}. Name a directory"
            " that is elsewhere."
        )


def is_unfinished(path: Path, token: str) -> bool:
    """Whether a directory was started, and not finished, by a writer with this token."""
    try:
        return bool(token) and (path / INCOMPLETE).read_text(errors="replace") == token
    except OSError:
        return False


@contextmanager
def writing_directory(path: Path, meta: Mapping[str, Any], name: str, token: str = "") -> Iterator[Path]:
    """Open the new or empty directory `path` for the caller to fill; writing `_meta.yaml` completes it.

    Until then it is marked by the file `_incomplete`, with the `token` of a writer that may resume. On an
    error, everything written and the directories created for it are removed. Raises `OutputDirectoryError` if
    it is not empty, and its subclass `UnfinishedOutputError` if it cannot be created or filled.
    """
    check_output(path, name, token=token)
    if is_unfinished(path, token):
        empty_directory(path)
    made = missing_directories(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / INCOMPLETE).write_text(token)
        yield path
        write_yaml(path / META, meta)
        read_back(path / META, lambda: (path / META).read_text() == yaml_text(meta))
        (path / INCOMPLETE).unlink()
    except OSError as error:
        remove_output(path, made)
        raise UnfinishedOutputError(
            f"{parameter(name)} {path} cannot be finished, and nothing is left of it: {error}."
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
