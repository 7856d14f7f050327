"""Write the parts of a split as image directories: all of them, or none."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    ImageDirectoryWriter,
    writing_image_directory,
)
from train_pytorch_model.formats.outputs import empty_directory, missing_directories, remove_empty
from train_pytorch_model.formats.writing import UnreadableFileError, copy_file, in_order
from train_pytorch_model.machine.console import Bar, progress_bar

OUTPUTS = ("output_1", "output_2", "output_3")


@dataclass(frozen=True)
class _Job:
    """A part, and where it goes."""

    part: ImageDirectory
    output: Path
    name: str  # of the output, as a parameter


def write_parts(parts: Sequence[ImageDirectory], outputs: Sequence[Path]) -> None:
    """Write all parts or none, unchanged. Raises `InvalidDatasetError`, `OutputDirectoryError`."""
    jobs = [_Job(*job) for job in zip(parts, outputs, OUTPUTS, strict=False)]
    # In the same order whichever is first: of two commands with the same outputs, one gets all.
    jobs.sort(key=lambda job: job.output.resolve())
    with progress_bar(sum(map(len, parts)), "Splitting") as bar:
        _write(jobs, bar)


def _write(jobs: Sequence[_Job], bar: Bar) -> None:
    """Own all outputs, fill them, and only then complete one after the other.

    So a command that is killed leaves outputs that are all unfinished, which it can replace.
    """
    completed: list[tuple[_Job, list[Path]]] = []
    try:
        with ExitStack() as outputs:
            writers = [outputs.enter_context(_completing(job, completed)) for job in jobs]
            for job, writer in zip(jobs, writers, strict=True):
                _fill(writer, job.part, bar)
    except BaseException:
        for job, made in completed:  # but another one is not
            empty_directory(job.output)
            remove_empty(made)
        raise


@contextmanager
def _completing(
    job: _Job, completed: list[tuple[_Job, list[Path]]]
) -> Iterator[ImageDirectoryWriter]:
    """Own an output for a `with`; record that it is complete, with the directories made for it."""
    made = missing_directories(job.output)
    with writing_image_directory(job.output, job.part.read_schema(), job.name) as writer:
        yield writer
    completed.append((job, made))


def _fill(writer: ImageDirectoryWriter, part: ImageDirectory, bar: Bar) -> None:
    """Copy the files of a part and write its rows, which may share a file."""
    targets: set[str] = set()

    def new_target(row: dict[str, Any]) -> Path | None:
        """Return where to copy the file of a row; None if an earlier row has copied it."""
        target = writer.path_for(row)
        is_new = str(target) not in targets
        targets.add(str(target))
        return target if is_new else None

    def copy(item: tuple[str, Path | None, dict[str, Any]]) -> dict[str, Any]:
        name, target, row = item
        try:
            if target is not None:
                copy_file(part.root / name, target)
        except UnreadableFileError as error:
            raise InvalidDatasetError(part.title, f"image {name!r}: {error}.") from error
        return row

    listed = zip(part.file_names, part.read_listed_rows(), strict=True)
    with in_order(copy, ((name, new_target(row), row) for name, row in listed)) as rows:
        for row in rows:
            writer.add(row)
            bar.advance()
