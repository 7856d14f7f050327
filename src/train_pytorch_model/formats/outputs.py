"""Output directories: checked before the work, marked while they are filled, then complete or gone.

_incomplete    while it is filled: the token of a writer that may resume, or its process
_meta.yaml     written last: a directory with it is complete
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR
from tempfile import TemporaryFile
from typing import Any

from train_pytorch_model.config.wording import parameter, quoted
from train_pytorch_model.errors import OutputDirectoryError, UnfinishedOutputError
from train_pytorch_model.formats.marks import create_mark, is_abandoned, take_over, writer_in
from train_pytorch_model.formats.reading import INCOMPLETE, META
from train_pytorch_model.formats.replacing import (
    NOUNS,
    check_replaceable,
    clear_replacement,
    is_replaceable,
    replace_directory,
    replacement_of,
)
from train_pytorch_model.formats.run_folder import LOCK, OUTPUT_PARAMETER, RunFolder
from train_pytorch_model.formats.writing import read_back, write_yaml
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.log_lines import StandardOutputError

PROBE = ".write-test-"
FILE_SUFFIXES = frozenset(
    {".csv", ".json", ".jsonl", ".parquet", ".html", ".yaml", ".zip", ".tar", ".gz"}
    | {".onnx", ".pt", ".pt2", ".pth", ".safetensors"}
)
SHOWN = 3  # entries of a directory that is not empty


def check_output(
    path: Path,
    name: str,
    by_writing: bool = True,
    token: str = "",
    kind: str = "",
    overwrite: bool = False,
) -> None:
    """Raise `OutputDirectoryError` unless `path` can become an output directory.

    Leaves nothing behind. `name` is the parameter that names it. Of several processes, one tests it
    `by_writing` and the others only inspect it. An unfinished output of a writer with the same
    `token`, or of a process of this host that has ended, is accepted; and a whole result of `kind`,
    if the verb can `overwrite` one and is told to.
    """
    title = f"{parameter(name)} {path}"
    try:
        if overwrite and by_writing:
            clear_replacement(path, kind)
        if kind and _is_kept(path, name, token, kind, overwrite):
            check_output(replacement_of(path), name, by_writing)
            return
        _check_is_no_file(path, title)
        if is_unfinished(path, token) or is_abandoned(path / INCOMPLETE):
            return
        _check_is_empty(path, title)
        if not token:
            check_no_training(path, name)
        if by_writing:
            where = next(folder for folder in (path, *path.parents) if os.path.lexists(folder))
            with TemporaryFile(prefix=PROBE, dir=where):
                pass
    except OSError as error:
        raise OutputDirectoryError(
            f"{title} cannot be written: {error.strerror or error}. Name a directory that is new or"
            " empty."
        ) from error


def _is_kept(path: Path, name: str, token: str, kind: str, overwrite: bool) -> bool:
    """Return whether a result is in the way that is to be replaced.

    Raises `OutputDirectoryError` for one that is not to be, or cannot.
    """
    if is_unfinished(path, token) or is_abandoned(path / INCOMPLETE):
        return False
    entries = _entries(path) if os.path.isdir(path) else []
    if not entries or INCOMPLETE in entries:
        return False
    if overwrite:
        check_replaceable(path, name, kind)
        return True
    if is_replaceable(path, kind):
        raise OutputDirectoryError(
            f"{parameter(name)} {path} holds a finished {NOUNS[kind]}. {quoted('overwrite')}"
            f" replaces it once the new one is complete. Or name another {quoted(name)}."
        )
    return False


def _check_is_no_file(path: Path, title: str) -> None:
    # Asked once: another writer may remove the directory in between.
    with suppress(FileNotFoundError):
        if not S_ISDIR(path.stat().st_mode):
            raise OutputDirectoryError(f"{title} is a file. Name a directory that is new or empty.")


def _check_is_empty(path: Path, title: str) -> None:
    entries = _entries(path)
    if path.suffix.lower() in FILE_SUFFIXES and not path.exists():
        raise OutputDirectoryError(
            f"{title} will be a directory, but is named like a file."
            f" Name it {path.with_suffix('')}."
        )
    if INCOMPLETE in entries:
        raise _unfinished_elsewhere(path, title)
    if entries:
        first = ", ".join(entries[:SHOWN])
        more = " …" if len(entries) > SHOWN else ""
        raise OutputDirectoryError(
            f"{title} is not empty: it holds {first}{more}. Name a directory that is new or empty."
        )


def _unfinished_elsewhere(path: Path, title: str) -> OutputDirectoryError:
    """Return the error of a directory with another owner, who may live."""
    writer = writer_in(path / INCOMPLETE)
    by_writer = f", by {writer}" if writer else ""
    return OutputDirectoryError(
        f"{title} holds an unfinished result ({INCOMPLETE} is present{by_writer}) of a"
        " program that is running, or was stopped. Wait for it, delete the directory, or name"
        " another."
    )


def check_apart(path: Path, name: str, other: Path, other_name: str) -> None:
    """Raise `OutputDirectoryError` if the output `path` is the directory `other` or inside it."""
    real = os.path.realpath(path)
    other_real = os.path.realpath(other)
    if Path(real).is_relative_to(other_real):
        relation = "the same as" if real == other_real else "inside"
        raise OutputDirectoryError(
            f"{parameter(name)} {path} is {relation} {parameter(other_name)} {other}."
            " Name a directory that is elsewhere."
        )


def is_unfinished(path: Path, token: str) -> bool:
    """Return whether a writer with this token has begun a directory, and not finished it."""
    if not token:
        return False
    try:
        text = (path / INCOMPLETE).read_text(errors="replace")
        # Empty if that writer was killed just after it had created the file.
        return text == token or (not text and _entries(path) == [INCOMPLETE])
    except OSError:
        return False


@contextmanager
def writing_directory(
    path: Path, meta: Mapping[str, Any], name: str, token: str = "", overwrite: bool = False
) -> Iterator[Path]:
    """Own the directory `path` to fill it, like `owning_directory`; `_meta.yaml` completes it.

    If a complete one is there to `overwrite`, it is replaced then. Yields the directory to fill.
    """
    replaces = overwrite and (path / META).exists()
    target = replacement_of(path) if replaces else path
    with owning_directory(target, name, token):
        yield target
        text = write_yaml(target / META, meta)
        read_back(target / META, hashlib.sha256(text.encode()).hexdigest())
    if replaces:
        _replace(path, target, name, meta["type"])


def _replace(path: Path, replacement: Path, name: str, kind: str) -> None:
    """Put a complete result in the place of another, unless that has been changed meanwhile."""
    try:
        check_replaceable(path, name, kind)
        replace_directory(path, replacement, kind)
    except (OSError, OutputDirectoryError) as error:
        shutil.rmtree(replacement, ignore_errors=True)
        if isinstance(error, OSError):
            raise unfinished_error(path, name, error) from error
        raise


@contextmanager
def owning_directory(path: Path, name: str, token: str = "") -> Iterator[None]:
    """Own the new or empty directory `path` for a `with`: no other command changes it.

    The file `_incomplete` marks it until then, with the `token` of a writer that may resume. What a
    process of this host has left there, which has ended, is replaced. On an error, everything
    written and the directories created for it are removed. Raises `OutputDirectoryError` if it is
    not empty or has an owner, and its subclass `UnfinishedOutputError` if it cannot be created or
    filled.
    """
    made = missing_directories(path)
    is_ours = False
    try:
        if is_unfinished(path, token):
            empty_directory(path)
        if is_abandoned(path / INCOMPLETE):
            _take_over(path, name)
            is_ours = True
            empty_directory(path, keeps_mark=True)
        else:
            _mark(path, name, token)
            is_ours = True
        yield
        (path / INCOMPLETE).unlink()
    except BaseException as error:
        if is_ours:
            empty_directory(path)
        remove_empty(made)
        # What cannot be printed says nothing about the directory.
        if isinstance(error, OSError) and not isinstance(error, StandardOutputError):
            raise unfinished_error(path, name, error) from error
        raise


def unfinished_error(path: Path, name: str, error: OSError) -> UnfinishedOutputError:
    """Return the error of an output that cannot be finished."""
    return UnfinishedOutputError(
        f"{parameter(name)} {path} cannot be finished, and nothing is left of it: {error}."
    )


def _take_over(path: Path, name: str) -> None:
    """Become the owner of a directory whose writer has ended."""
    writer = writer_in(path / INCOMPLETE)
    if not take_over(path / INCOMPLETE):
        raise _unfinished_elsewhere(path, f"{parameter(name)} {path}")
    logger.info(f"{path} holds an unfinished result of {writer}, which has ended; it is replaced.")


def _mark(path: Path, name: str, token: str) -> None:
    """Become the owner of a new or empty directory: only one process can create the mark."""
    _create_mark(path, name, token)
    is_ours = False
    try:
        check_no_training(path, name)
        is_ours = _entries(path) == [INCOMPLETE]
    finally:
        if not is_ours:  # an owner has come and completed it since the check
            (path / INCOMPLETE).unlink()
    if not is_ours:
        check_output(path, name, by_writing=False)


def _create_mark(path: Path, name: str, token: str) -> None:
    for attempts_left in (2, 1, 0):
        check_output(path, name, by_writing=False)
        try:
            path.mkdir(parents=True, exist_ok=True)
            create_mark(path / INCOMPLETE, token)
            return
        except (FileExistsError, FileNotFoundError):
            # An owner has come, or has gone and removed its folder.
            if not attempts_left:
                raise


def _entries(path: Path) -> list[str]:
    """Return the sorted names in a directory, but for write tests; none if it does not exist."""
    with suppress(FileNotFoundError):
        return sorted(entry.name for entry in path.iterdir() if not entry.name.startswith(PROBE))
    return []


def check_no_training(path: Path, name: str) -> None:
    """Raise `OutputDirectoryError` if a training will write its model to this output."""
    if name == OUTPUT_PARAMETER:
        return
    lock = RunFolder.beside(path).root / LOCK
    if lock.exists():
        raise OutputDirectoryError(
            f"{parameter(name)} {path} is the output of a training that is running, or was killed:"
            f" {lock} exists. Name another directory."
        )


def missing_directories(path: Path) -> list[Path]:
    """Return the directories to create for `path` to exist, the innermost first."""
    return [directory for directory in (path, *path.parents) if not directory.exists()]


def remove_empty(directories: Sequence[Path]) -> None:
    """Remove directories that `missing_directories` has returned, as far as they are empty."""
    with suppress(OSError):  # a directory that another process writes to stays
        for directory in directories:
            directory.rmdir()


def empty_directory(path: Path, keeps_mark: bool = False) -> None:
    """Empty an output that cannot be finished.

    If this is stopped, what remains never looks complete.
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
        if not keeps_mark:
            mark.unlink()
