"""Convert class folders, an archive, a table or AutoML's JSONL to an ImageDirectory."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir

import numpy as np

from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.correcting import Corrections, correct
from train_pytorch_model.errors import InvalidDatasetError
from train_pytorch_model.formats import image_directory
from train_pytorch_model.formats.archive import DIRECTORY_FILES, KINDS, Unpacked, extract
from train_pytorch_model.formats.automl_list import (
    ANNOTATIONS_SUFFIX,
    MLTABLE,
    annotations_of,
    read_annotations,
)
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    ImageDirectoryWriter,
    images_of,
    open_image_directory,
)
from train_pytorch_model.formats.label_files import LabelFile, write_label_files
from train_pytorch_model.formats.label_kinds import CATEGORIES_COLUMN
from train_pytorch_model.formats.label_sets import LabelSets
from train_pytorch_model.formats.label_table import read_table
from train_pytorch_model.formats.labelled_folder import LabelledFiles, open_labelled, read_labelled
from train_pytorch_model.formats.marks import create_mark, is_abandoned
from train_pytorch_model.formats.missing_path import explain_missing
from train_pytorch_model.formats.outputs import unfinished_error
from train_pytorch_model.formats.part_names import TRAINING
from train_pytorch_model.formats.plain_folders import NestedDataSetError, read_plain_folders
from train_pytorch_model.formats.reading import INCOMPLETE, META, MalformedFileError
from train_pytorch_model.formats.schema import image_schema
from train_pytorch_model.formats.table_files import is_usual, tables_in
from train_pytorch_model.formats.table_rows import TABLE_SUFFIXES, TAGGED_SUFFIX
from train_pytorch_model.formats.writing import UnreadableFileError, copy_file, in_order
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, read_size
from train_pytorch_model.inputs.damaged_categories import without_empty_categories
from train_pytorch_model.inputs.unreadable_images import (
    list_unreadable_images,
    without_unreadable_images,
)
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.quality.identical_files import identical_pairs

PORT = "Input dataset"
OUTPUT = "output"
HINT = (
    f"Convert takes one folder per category, an archive of them ({KINDS}), a CSV table of file"
    f" names and categories, or AutoML's {ANNOTATIONS_SUFFIX}."
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
    columns: TableOptions = field(default_factory=TableOptions)
    """Which columns of the table say what."""
    label_files: Sequence[LabelFile] = ()
    """The lists that are wanted of the labels, also of an image directory."""


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
        elif is_usual(path) or path.suffix.lower() in (*TABLE_SUFFIXES, TAGGED_SUFFIX):
            yield _open_table(path, labels, path)
        elif path.name == MLTABLE:
            yield _open_annotations(annotations_of(path.parent), labels, path)
        elif path.suffix.lower() == ANNOTATIONS_SUFFIX:
            yield _open_annotations(path, labels, path)
        else:
            with _folder_beside(output) as folder:
                with naming_output(output, OUTPUT):
                    content = extract(path, folder)
                    files = list_unpacked(content, labels)
                images = images_of(files.listing, path, PORT)
                yield Source(images, files.root, is_unpacked=True, unreadable=content.unreadable)
    except NestedDataSetError as error:
        hint = f"Unpack it and name one data set, such as {error.name!r}:"
        hint += " folders of images need no conversion."
        raise InvalidDatasetError(title, str(error), hint) from error
    except MalformedFileError as error:
        raise InvalidDatasetError(title, str(error), HINT) from error


def list_unpacked(content: Unpacked, labels: Labels = BY_DEFAULT) -> LabelledFiles:
    """List the images of an archive, by a table or by their folders.

    Raises `MalformedFileError`.
    """
    folder = content.folder
    if any((folder / name).is_file() for name in DIRECTORY_FILES):
        raise MalformedFileError(
            "it already contains an ImageDirectory. Unpack it; no conversion is needed."
        )
    if labels.labels:
        listing = read_table(labels.labels, folder, labels.columns).listing
        files = LabelledFiles(listing, folder)
    else:
        files = read_labelled(folder, labels.columns, read_plain_folders)
    ignored = {**content.ignored, **files.listing.ignored}
    return replace(files, listing=replace(files.listing, ignored=ignored))


def is_archive(path: Path) -> bool:
    """Whether a path is a file that is called like an archive."""
    return path.name.lower().endswith(tuple(KINDS.split(", "))) and os.path.isfile(path)


def correct_source(source: Source, corrections: Corrections) -> Source:
    """Return the source with the decisions of a table. Raises `InvalidDatasetError`."""
    images = replace(source.images, root=source.folder)  # an archive's files are in the folder
    corrected = correct(source.folder, {TRAINING: images}, corrections)[TRAINING]
    return replace(source, images=replace(corrected, root=source.images.root))


def merge_copies(source: Source) -> Source:
    """Return the source with one image for all copies of a file, which has all their categories.

    Raises `InvalidDatasetError` for images without categories.
    """
    images = source.images
    images.require_labels()
    pairs = identical_pairs([source.folder / name for name in images.file_names])
    first_of = np.arange(len(images))
    first_of[pairs[:, 1]] = pairs[:, 0]
    lists: dict[int, set[int]] = {}
    for number, first in zip(images.class_indices.tolist(), first_of.tolist(), strict=True):
        lists.setdefault(first, set()).update(images.labels.members(number))
    sets = LabelSets()
    firsts = np.array(sorted(lists), np.int64)
    numbers = [sets.number_of(lists[first]) for first in firsts.tolist()]
    merged = replace(
        images.select(firsts),
        class_indices=np.asarray(numbers, dtype=np.int32),
        labels=sets.kind(len(images.categories)),
        columns=("id", CATEGORIES_COLUMN),
    )
    logger.info(
        f"{counted(len(images) - len(merged), 'copy is', 'copies are')} merged:"
        f" {counted(len(merged), 'image has', 'images have')} lists of categories"
    )
    return replace(source, images=merged)


def convert(
    source: Source, output: Path, overwrite: bool = False, label_files: Sequence[LabelFile] = ()
) -> int:
    """Write an ImageDirectory of the source; return how many images it has.

    It may `overwrite` another one, and has its labels once more in these `label_files`.

    Raises `InvalidDatasetError` for none, `OutputDirectoryError`.
    """
    images = source.images
    schema = image_schema(images.categories, images.labels)
    unreadable: dict[int, str] = {}
    with image_directory.writing_image_directory(output, schema, OUTPUT, overwrite) as writer:

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
        kept = without_empty_categories(kept)
        _write_label_files(images, writer, label_files)
        writer.schema_content = image_schema(kept.categories, kept.labels)
    for warning in kept.warnings():
        logger.warning(warning)
    return len(kept)


def _write_label_files(
    images: ImageDirectory, writer: ImageDirectoryWriter, kinds: Sequence[LabelFile]
) -> None:
    """Write the labels once more, as other tools read them. Raises `InvalidDatasetError`."""
    try:
        write_label_files(writer.root, writer.written_list(), kinds)
    except MalformedFileError as error:
        raise InvalidDatasetError(images.title, str(error)) from error


def _open_folder(path: Path, labels: Labels) -> Source:
    if labels.labels:
        return _open_table(labels.labels, labels, path)
    if os.path.exists(path / META):
        if not labels.label_files:
            raise MalformedFileError("it is already an ImageDirectory; no conversion is needed.")
        return Source(open_image_directory(path, PORT), path)
    if os.path.exists(path / MLTABLE):
        return _open_annotations(annotations_of(path), labels, path)
    tables = tables_in(path)
    if labels.images and tables:
        return _open_table(tables[0], labels, path)
    images = open_labelled(path, PORT, labels.columns).images
    return Source(images, images.root)


def _open_table(table: Path, labels: Labels, root: Path) -> Source:
    folder = labels.images or (root if root.is_dir() else root.parent)
    listing = read_table(table, folder, labels.columns).listing
    return Source(images_of(listing, root, PORT), folder)


def _open_annotations(path: Path, labels: Labels, root: Path) -> Source:
    folder = labels.images or path.parent
    return Source(images_of(read_annotations(path, folder), root, PORT), folder)


@contextmanager
def unpacked(path: Path, port: str, output: Path, output_name: str) -> Iterator[Path]:
    """An archive's content, or `path` itself.

    Raises `InvalidDatasetError`, `UnfinishedOutputError`.
    """
    if not is_archive(path):
        yield path
        return
    with extracted(path, port, output, output_name) as inner:
        yield inner


@contextmanager
def extracted(
    path: Path, port: str, output: Path, output_name: str, hint: str = ""
) -> Iterator[Path]:
    """The content of an archive, in a folder near the output that is removed on exit.

    Raises `InvalidDatasetError`, `UnfinishedOutputError`.
    """
    with _folder_beside(output) as folder:
        try:
            with naming_output(output, output_name):
                inner = extract(path, folder).folder
        except MalformedFileError as error:
            raise InvalidDatasetError(f'{port} "{path}"', str(error), hint) from error
        yield inner


@contextmanager
def naming_output(output: Path, name: str) -> Iterator[None]:
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
