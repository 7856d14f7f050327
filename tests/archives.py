"""Archives for tests: pack them, and list or read their contents."""

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from train_pytorch_model.formats.archive import ZipArchive, list_archive, open_archive
from train_pytorch_model.formats.listing import Listing
from train_pytorch_model.formats.reading import MalformedFileError

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "tar": bytes,
    "tar.gz": gzip.compress,
    "tar.bz2": bz2.compress,
}
KINDS = ("zip", *COMPRESS)
Members = Mapping[str, bytes | None]
"""Name → bytes, or None for a folder, in the order of the archive."""


def pack(path: Path, members: Members, kind: str = "zip") -> Path:
    """Write an archive of one of `KINDS`, whatever the suffix of `path`."""
    if kind == "zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zip_:
            for name, data in members.items():
                zip_.writestr(name, data or b"")
        return path
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.REGTYPE if data is not None else tarfile.DIRTYPE
            info.size = len(data or b"")
            tar.addfile(info, io.BytesIO(data or b""))
    path.write_bytes(COMPRESS[kind](buffer.getvalue()))
    return path


def listed(path: Path) -> Listing:
    with open_archive(path) as archive:
        return list_archive(archive)[0]


def contents(path: Path) -> dict[str, bytes]:
    """Name → bytes of all images in the archive."""
    with open_archive(path) as archive:
        listing, around = list_archive(archive)
        names = list(listing.file_names)
        if isinstance(archive, ZipArchive):
            return {name: b"".join(archive.read_chunks(around + name)) for name in names}
        indices = {around + name: index for index, name in enumerate(names)}
        return {names[index]: b"".join(chunks) for index, _, chunks in archive.contents(indices)}


def refused(path: Path) -> str:
    with pytest.raises(MalformedFileError) as raised:
        listed(path)
    return str(raised.value)
