"""Archives for tests: pack them, and list or unpack their contents."""

import bz2
import gzip
import io
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from train_pytorch_model.datasets.conversion import list_unpacked
from train_pytorch_model.formats import archive
from train_pytorch_model.formats.archive import Unpacked, extract
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


def unpack_archive(path: Path, **limits: int) -> tuple[Unpacked, Listing]:
    """Unpack an archive into a new folder beside it."""
    root = Path(tempfile.mkdtemp(prefix=f"{path.name}-", dir=path.parent))
    with pytest.MonkeyPatch.context() as patched:
        for name, value in limits.items():
            patched.setattr(archive, name, value)
        content = extract(path, root)
    return content, list_unpacked(content).listing


def listed(path: Path, **limits: int) -> Listing:
    return unpack_archive(path, **limits)[1]


def contents(path: Path) -> dict[str, bytes]:
    """Name → bytes of all images in the archive."""
    unpacked, listing = unpack_archive(path)
    return {name: (unpacked.folder / name).read_bytes() for name in listing.file_names}


def refused(path: Path, **limits: int) -> str:
    with pytest.raises(MalformedFileError) as raised:
        unpack_archive(path, **limits)
    return str(raised.value)
