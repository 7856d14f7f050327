"""Convert class folders, an archive, a table or AutoML's JSONL to an ImageDirectory."""

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats import image_directory, label_table
from train_pytorch_model.formats.archive import DIRECTORY_FILES, KINDS, Unpacked, extract
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.marks import create_mark, is_abandoned
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.outputs import unfinished_error
from train_pytorch_model.formats.plain_folders import NestedDataSetError, read_plain_folders
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError
from train_pytorch_model.formats.schema import image_schema
from train_pytorch_model.formats.writing import UnreadableFileError, copy_file, in_order
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, read_size
from train_pytorch_model.inputs.unreadable_images import (
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger, progress_bar

PORT = "Input dataset"
OUTPUT = "output"
HINT = (
    f"Convert takes one folder per category, an archive of them ({KINDS}), a CSV table of file"
    f" names and categories, or AutoML's {label_table.ANNOTATIONS_SUFFIX}."
)
UNPACKED = ".unpacked-"  # begins the name of the folder of an archive's content
IMAGES_PER_LINE = 10_000  # in a log


@dataclass(frozen=True)
class Source:
    """The input of a conversion."""

    images: ImageDirectory
    """Its `root` is an archive or list, if the input is one: then its `path` is not usable."""
    folder: Path
    """The file names are relative to it."""
    is_unpacked: bool = False
    """Whether the files were unpacked, and so may be moved."""
    unreadable: Mapping[Path, str] = field(default_factory=dict)
    """Why a file is not as in the archive."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Where the categories of images are, if not in the names of their folders."""

    labels: Path | None = None
    """The table of the categories; by default the folder's, if there is one."""
    images: Path | None = None
    """Where the images of a table or list are; by default its own folder."""
    file_column: str = ""
    """The table's column of file names; found by its name if empty."""
    label_column: str = ""
    """The table's column of categories; found by its name if empty."""


BY_DEFAULT = Labels()


@contextmanager
def open_source(path: Path, output: Path, labels: Labels = BY_DEFAULT) -> Iterator[Source]:
    """Open the input; an archive is unpacked.

    Raises `InvalidDatasetError`, `UnfinishedOutputError`.
    """
    title = f'{PORT} "{path}"'
    try:
        if os.path.isdir(path):
            yield _open_folder(path, labels)
        elif not os.path.isfile(path):
            raise InvalidDatasetError(title, explain_missing(path, "file or directory"), HINT)
        elif path.name in label_table.TABLES or path.suffix.lower() in label_table.TABLE_SUFFIXES:
            yield _open_table(path, labels, path)
        elif path.name == label_table.MLTABLE:
            yield _open_annotations(label_table.annotations_of(path.parent), labels, path)
        elif path.suffix.lower() == label_table.ANNOTATIONS_SUFFIX:
            yield _open_annotations(path, labels, path)
        else:
            with _folder_beside(output) as folder:
                with _naming(output, OUTPUT):
                    content = extract(path, folder)
                    images = images_of(list_unpacked(content, labels), path, PORT)
                yield Source(
                    images, content.folder, is_unpacked=True, unreadable=content.unreadable
                )
    except NestedDataSetError as error:
        hint = f"Unpack it and name one data set, such as {error.name!r}:"
        hint += " folders of images need no conversion."
        raise InvalidDatasetError(title, str(error), hint) from error
    except MalformedFileError as error:
        raise InvalidDatasetError(title, str(error), HINT) from error


def list_unpacked(content: Unpacked, labels: Labels = BY_DEFAULT) -> Listing:
    """List the images of an archive, by a table or by their folders.

    Raises `MalformedFileError`.
    """
    folder = content.folder
    if any((folder / name).is_file() for name in DIRECTORY_FILES):
        raise MalformedFileError(
            "it already contains an ImageDirectory. Unpack it; no conversion is needed."
        )
    if table := labels.labels or label_table.table_in(folder):
        listing = label_table.read_table(table, folder, labels.file_column, labels.label_column)
    else:
        listing = read_plain_folders(folder)
    return replace(listing, ignored={**content.ignored, **listing.ignored})


def keep_unpacked(path: Path, output: Path) -> None:
    """Unpack an archive to a new folder, which is there once it is whole.

    Raises what `unpacked` does.
    """
    with unpacked(path, PORT, output, OUTPUT) as inner, _naming(output, OUTPUT):
        inner.rename(output)


def is_archive(path: Path) -> bool:
    """Whether a path is a file that is called like an archive."""
    return path.name.lower().endswith(tuple(KINDS.split(", "))) and os.path.isfile(path)


def convert(source: Source, output: Path) -> int:
    """Write an ImageDirectory of the source; return how many images it has.

    Raises `InvalidDatasetError` for none, `OutputDirectoryError`.
    """
    images, schema = source.images, image_schema(source.images.categories)
    unreadable: dict[int, str] = {}
    with image_directory.writing_image_directory(output, schema, OUTPUT) as writer:

        def copy(index: int) -> str:
            """Copy or move an image; return why it is left out, or an empty text.

            Raises `OSError`.
            """
            path = source.folder / images.file_names[index]
            target = writer.path_for(images.converted_row(index))
            if path in source.unreadable:
                return source.unreadable[path]
            try:
                if source.is_unpacked:  # creating and removing each file twice would take longest
                    shutil.move(path, target, copy_function=shutil.copyfile)
                else:
                    copy_file(path, target)
                read_size(target)
            except (UnreadableFileError, UnreadableImageError) as error:
                target.unlink()
                return str(error)
            return ""

        with (
            in_order(copy, range(len(images))) as copied,
            progress_bar(len(images), "Converting") as bar,
        ):
            for done, reason in enumerate(copied, 1):
                if reason:
                    unreadable[done - 1] = reason
                else:
                    writer.add(images.converted_row(done - 1))
                bar.advance()
                if done % IMAGES_PER_LINE == 0:
                    bar.show(done, f"left out: {len(unreadable)}")
        kept, records = without_unreadable_images(images, unreadable, is_limited=False)
        list_unreadable_images(writer.root, records)
    for warning in kept.warnings():
        logger.warning(warning)
    return len(kept)


def _open_folder(path: Path, labels: Labels) -> Source:
    if table := labels.labels or label_table.table_in(path):
        return _open_table(table, labels, path)
    if os.path.exists(path / label_table.MLTABLE):
        return _open_annotations(label_table.annotations_of(path), labels, path)
    if os.path.exists(path / META):
        raise MalformedFileError("it is already an ImageDirectory; no conversion is needed.")
    return Source(open_image_directory(path, PORT), path)


def _open_table(table: Path, labels: Labels, root: Path) -> Source:
    folder = labels.images or (root if root.is_dir() else root.parent)
    listing = label_table.read_table(table, folder, labels.file_column, labels.label_column)
    return Source(images_of(listing, root, PORT), folder)


def _open_annotations(path: Path, labels: Labels, root: Path) -> Source:
    folder = labels.images or path.parent
    return Source(images_of(label_table.read_annotations(path, folder), root, PORT), folder)


@contextmanager
def unpacked(path: Path, port: str, output: Path, output_name: str) -> Iterator[Path]:
    """An archive's content, or `path` itself.

    Raises `InvalidDatasetError`, `UnfinishedOutputError`.
    """
    if not is_archive(path):
        yield path
        return
    with _folder_beside(output) as folder:
        try:
            with _naming(output, output_name):
                inner = extract(path, folder).folder
        except MalformedFileError as error:
            raise InvalidDatasetError(f'{port} "{path}"', str(error)) from error
        yield inner


@contextmanager
def _naming(output: Path, name: str) -> Iterator[None]:
    """Name the output that cannot be written for lack of space to unpack."""
    try:
        yield
    except OSError as error:
        raise unfinished_error(output, name, error) from error


@contextmanager
def _folder_beside(output: Path) -> Iterator[Path]:
    """Make a folder near the output, or where it can be written; it is removed on exit."""
    near = next(folder for folder in output.absolute().parents if folder.is_dir())
    where = near if os.access(near, os.W_OK) else Path(gettempdir())
    for left in where.glob(f"{UNPACKED}*"):
        if is_abandoned(left / INCOMPLETE):
            shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=UNPACKED, dir=where, ignore_cleanup_errors=True) as name:
        create_mark(Path(name, INCOMPLETE))
        folder = Path(name, "content")  # with the permissions of any folder
        folder.mkdir()
        yield folder
