"""Convert class folders, an archive of them, or AutoML's JSONL to an ImageDirectory of the classic form."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import call
from pathlib import Path

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.archive import KINDS, TarArchive, list_archive, open_archive
from train_pytorch_model.formats.automl import MLTABLE, SUFFIX, annotations_of, read_annotations
from train_pytorch_model.formats.copying import (
    UnreadableFileError,
    copy_threads,
    in_order,
    read_chunks,
    write_chunks,
)
from train_pytorch_model.formats.image_directory import (
    ImageDirectory,
    images_of,
    open_image_directory,
    writing_image_directory,
)
from train_pytorch_model.formats.reading import META, MalformedFileError
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, read_size
from train_pytorch_model.inputs.bad_images import BAD_IMAGES, left_out, readable_images, write_bad_images
from train_pytorch_model.machine.console import logger, progress_bar
from train_pytorch_model.words.errors import InvalidDatasetError

PORT = "Input dataset"
FLAG = "--output"
HINT = f"Convert takes one folder per category, an archive of them ({KINDS}), or AutoML's {SUFFIX}."
MAX_HELD_BYTES = 4 << 20  # of a tar member waiting for a thread; a larger one is copied inline
IMAGES_PER_LINE = 10_000  # in a log

Copied = tuple[int, str]
"""Index of an image, and why it is left out; empty if it is kept."""

Copy = Callable[[int, Iterable[bytes]], Copied]
"""Index of an image, the bytes of its file → the outcome."""


@dataclass(frozen=True)
class Source:
    """The input of a conversion."""

    images: ImageDirectory
    """`root` is the archive or the list, if the input is one: then `path` is not usable."""
    copies: Callable[[Copy], Iterator[Callable[[], Copied]]]
    """Yields a copy task per image, to be called once in any thread; not always in the images' order."""


@contextmanager
def open_source(path: Path) -> Iterator[Source]:
    """Open and check the input without reading its images. Raises `InvalidDatasetError`."""
    title = f'{PORT} "{path}"'
    try:
        if os.path.isdir(path):  # noqa: PTH112, False for a name too long, where Path raises
            yield _open_folder(path)
        elif not os.path.isfile(path):  # noqa: PTH113, the same
            raise InvalidDatasetError(title, "there is no such file or directory.", HINT)
        elif path.name == MLTABLE:
            yield _open_annotations(annotations_of(path.parent), path)
        elif path.suffix.lower() == SUFFIX:
            yield _open_annotations(path, path)
        else:
            with open_archive(path) as archive:
                listing, around = list_archive(archive)
                images = images_of(listing, path, PORT)
                if isinstance(archive, TarArchive):
                    indices = {around + name: index for index, name in enumerate(images.file_names)}
                    yield Source(images, lambda copy: _in_the_tars_order(archive.contents(indices), copy))
                else:
                    yield _by_index(images, lambda name: archive.read_chunks(around + name))
    except MalformedFileError as error:
        raise InvalidDatasetError(title, str(error), HINT) from error


def convert(source: Source, output: Path) -> int:
    """Write the ImageDirectory; returns how many images it has.

    Raises `InvalidDatasetError` if no image can be read, `OutputDirectoryError`.
    """
    images = source.images
    bad: dict[int, str] = {}
    with writing_image_directory(output, schema.image_schema(images.categories), FLAG) as writer:

        def copy(index: int, chunks: Iterable[bytes]) -> Copied:
            target = writer.place(images.converted_row(index))
            return index, _rejection_reason(target, chunks)

        with copy_threads() as pool, progress_bar(len(images), "Converting") as bar:
            for done, (index, reason) in enumerate(in_order(pool, call, source.copies(copy)), 1):
                if reason:
                    bad[index] = reason
                bar.advance()
                if done % IMAGES_PER_LINE == 0:
                    bar.show(done, f"left out: {len(bad)}")
        kept, records = readable_images(images, bad)
        for row in map(kept.converted_row, range(len(kept))):
            writer.add(row)
        if records:
            logger.warning(left_out(records))
            write_bad_images(writer.root / BAD_IMAGES, records)
    for warning in kept.warnings():
        logger.warning(warning)
    return len(kept)


def _open_folder(path: Path) -> Source:
    if (path / MLTABLE).exists():
        return _open_annotations(annotations_of(path), path)
    if (path / META).exists():
        raise MalformedFileError("it is already an ImageDirectory; no conversion is needed.")
    images = open_image_directory(path, PORT)
    return _by_index(images, lambda name: read_chunks(path / name))


def _open_annotations(path: Path, root: Path) -> Source:
    images = images_of(read_annotations(path), root, PORT)
    return _by_index(images, lambda name: read_chunks(path.parent / name))


def _by_index(images: ImageDirectory, read: Callable[[str], Iterator[bytes]]) -> Source:
    return Source(
        images,
        lambda copy: (partial(copy, index, read(name)) for index, name in enumerate(images.file_names)),
    )


def _in_the_tars_order(
    contents: Iterator[tuple[int, int, Iterator[bytes]]], copy: Copy
) -> Iterator[Callable[[], Copied]]:
    for index, size, chunks in contents:
        if size <= MAX_HELD_BYTES:
            yield partial(copy, index, list(chunks))
        else:
            copied = copy(index, chunks)
            yield partial(tuple[int, str], copied)


def _rejection_reason(target: Path, chunks: Iterable[bytes]) -> str:
    """Write the file of an image; returns why it was left out, or an empty text. Raises `OSError`."""
    try:
        write_chunks(target, chunks)
        read_size(target)
    except (UnreadableFileError, UnreadableImageError) as error:
        target.unlink()
        return str(error)
    return ""
