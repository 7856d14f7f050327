"""The file that `export` writes: whole, or not at all."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from train_pytorch_model import errors
from train_pytorch_model.config.wording import parameter
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.marks import create_mark, is_abandoned, take_over
from train_pytorch_model.formats.outputs import check_new


@contextmanager
def owning_file(output: Path) -> Iterator[Path]:
    """Own a new file for a `with`, which writes it under the name that it gets.

    Raises `OutputDirectoryError`, and `UnfinishedOutputError` if the disk is full.
    """
    mark = output.with_name(output.name + ".unfinished")
    unfinished = output.with_name(output.name + ".unfinished.part")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        _mark(mark, output)
        try:
            check_new(output)
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
