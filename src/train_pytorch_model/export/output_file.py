"""The file that `export` writes: whole, or not at all."""

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train_pytorch_model import errors
from train_pytorch_model.config.wording import parameter, quoted
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.export.metadata import PRODUCER
from train_pytorch_model.formats.marks import create_mark, is_abandoned, take_over
from train_pytorch_model.formats.outputs import check_no_training


@contextmanager
def owning_file(output: Path, overwrite: bool = False) -> Iterator[Path]:
    """Own a new file, or one to replace, for a `with`, which writes it under the name that it gets.

    Raises `OutputDirectoryError`, and `UnfinishedOutputError` if the disk is full.
    """
    mark = output.with_name(output.name + ".unfinished")
    unfinished = output.with_name(output.name + ".unfinished.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _mark(mark, output)
        try:
            check_file(output, overwrite)
            yield unfinished
            unfinished.replace(output)
        finally:
            unfinished.unlink(missing_ok=True)
            mark.unlink(missing_ok=True)
    except OSError as error:
        is_full = error.errno in errors.DISK_IS_FULL
        kind = errors.UnfinishedOutputError if is_full else OutputDirectoryError
        raise kind(
            f"{parameter('output')} {output} cannot be written: {error.strerror}."
        ) from error


def check_file(output: Path, overwrite: bool) -> None:
    """Raise `OutputDirectoryError` for a file that is there, unless it is ours to `overwrite`."""
    title = f"{parameter('output')} {output}"
    check_no_training(output, "output")
    if not os.path.lexists(output):
        return
    if not _is_exported(output):
        problem = "cannot be replaced" if overwrite else "exists"
        raise OutputDirectoryError(f"{title} {problem}: export has not written it. Name another.")
    if not overwrite:
        raise OutputDirectoryError(
            f"{title} exists. {quoted('overwrite')} replaces it once the new one is complete. Or"
            f" name another {quoted('output')}."
        )


def _is_exported(path: Path) -> bool:
    """Return whether a file is one that `export` has written, by what it says of itself."""
    try:
        if path.is_symlink():
            return False
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return data.rfind(PRODUCER.encode()) >= 0
    except (OSError, ValueError):  # a directory, or an empty file
        return False


def _mark(mark: Path, output: Path) -> None:
    """Become the only writer of a file; what a process has left that has ended is replaced."""
    if is_abandoned(mark) and take_over(mark):
        return
    try:
        create_mark(mark)
    except FileExistsError as error:
        raise OutputDirectoryError(
            f"{parameter('output')} {output} is being written by another export. If that was"
            f" killed, delete {mark}, or name another file."
        ) from error
