"""What `fit` unpacks of an archive, kept beside it and made anew when the archive has changed.

flowers.zip
flowers-images/…                what is in it
flowers-images/.unpacked.json   of which archive it is, and what was unpacked
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from train_pytorch_model.datasets.conversion import OUTPUT, extracted, naming_output
from train_pytorch_model.errors import OutputDirectoryError
from train_pytorch_model.formats.listing import UNPACKED_RECORD
from train_pytorch_model.formats.reading import MalformedFileError, read_json, sha256_of
from train_pytorch_model.formats.writing import write_json
from train_pytorch_model.inputs.scoring import DATASET
from train_pytorch_model.machine.console import logger

HINT = "Name a folder of images, an archive of one, or a table of images and their categories."


class _Record(msgspec.Struct):
    """Of which archive a folder is, and the sha256 of the names, sizes and times of its files."""

    archive: str
    size: int
    mtime_ns: int
    sha256: str
    content: str


def keep_unpacked(archive: Path, images: Path) -> str:
    """Unpack an archive to `images`, unless what is there is of the same archive.

    Returns the archive's sha256.
    Raises what `extracted` does, and `OutputDirectoryError` for a folder that is not the archive's.
    """
    if not os.path.lexists(images):
        sha256 = _unpack(archive, images)
        logger.info(f"{archive} is now unpacked in {images}")
        return sha256
    record = _read(images)
    if record is None:
        raise OutputDirectoryError(
            f"{archive} would be unpacked to {images}, which is there already, and does not say of"
            f" what it is. To train on what is in it, name {images}; to unpack {archive.name},"
            " rename or delete the folder first."
        )
    if _is_of(record, archive, images):
        logger.info(f"The images in {images} are used: {archive} is as it was unpacked there.")
        return record.sha256
    if record.content != _content_of(images):
        raise OutputDirectoryError(
            f"{archive} has changed since it was unpacked to {images}, and so have files in that"
            f" folder. To train on the folder, name {images}; to unpack {archive.name} anew, rename"
            " or delete the folder first."
        )
    logger.info(f"{archive} has changed since it was unpacked to {images}: it is unpacked anew.")
    return _unpack(archive, images)


def _unpack(archive: Path, images: Path) -> str:
    """Unpack an archive to a folder that is there once it is whole; it replaces an earlier one.

    Returns the archive's sha256.
    """
    with (
        extracted(archive, DATASET, images, OUTPUT, HINT) as inner,
        naming_output(images, OUTPUT),
    ):
        state = archive.stat()
        record = _Record(
            archive=archive.name,
            size=state.st_size,
            mtime_ns=state.st_mtime_ns,
            sha256=sha256_of(archive),
            content=_content_of(inner),
        )
        _write(inner, record)
        if os.path.lexists(images):
            images.rename(inner.with_name(".replaced"))  # where it is removed on exit
        try:
            inner.rename(images)
        except OSError:
            # Another node has unpacked the same archive meanwhile.
            other = _read(images)
            if other is None or other.sha256 != record.sha256:
                raise
    return record.sha256


def _is_of(record: _Record, archive: Path, images: Path) -> bool:
    """Return whether a record is of the archive as it is now, whatever its time says."""
    state = archive.stat()
    if state.st_size != record.size:
        return False
    if state.st_mtime_ns == record.mtime_ns:
        return True
    if sha256_of(archive) != record.sha256:
        return False
    record.mtime_ns = state.st_mtime_ns
    with suppress(OSError):
        _write(images, record)
    return True


def _content_of(folder: Path) -> str:
    """Return the sha256 of the names, sizes and times of all files but the record."""
    digest = hashlib.sha256()
    folders = [folder]
    while folders:
        current = folders.pop()
        with os.scandir(current) as entries:
            ordered = sorted(entries, key=lambda entry: entry.name)
        for entry in ordered:
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))
            elif entry.name != UNPACKED_RECORD:
                state = entry.stat(follow_symlinks=False)
                name = os.path.relpath(entry.path, folder)
                facts: tuple[Any, ...] = (name, state.st_size, state.st_mtime_ns)
                digest.update(repr(facts).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _read(images: Path) -> _Record | None:
    with suppress(MalformedFileError):
        return read_json(images / UNPACKED_RECORD, _Record)
    return None


def _write(images: Path, record: _Record) -> None:
    write_json(images / UNPACKED_RECORD, msgspec.structs.asdict(record))
