"""Archives of images, read in place: .zip, .tar, and a tar compressed by gzip or bzip2.

Only the images are unpacked, one by one, to where the caller wants them. A member path that points outside,
encryption, damage, or a size beyond `LIMITS` makes the whole archive invalid. Links, devices and hidden
members are counted, but never read or created. The format is detected from the content, not the suffix.

A zip has an index: it is listed at once and read in any order. A tar is one stream: it is read twice, once to
list it and once for the images.
"""

import bz2
import gzip
import io
import os
import stat
import sys
import tarfile
import threading
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, cast

from train_pytorch_model.formats import schema
from train_pytorch_model.formats.copying import UnreadableFileError
from train_pytorch_model.formats.listing import NESTED, Listing, list_folders
from train_pytorch_model.formats.plain_folders import SUFFIXES, is_hidden
from train_pytorch_model.formats.reading import META, MalformedFileError, is_inner_path
from train_pytorch_model.formats.tar_stream import DAMAGE, MAX_HEADER_BYTES, TarStream, damaged, one_line
from train_pytorch_model.formats.writing import CHUNK_BYTES

KINDS = ".zip, .tar, .tar.gz, .tgz, .tar.bz2, .gz, .bz2"
MAX_NAME_BYTES = 255  # of one folder or file; the limit of common file systems
MAX_INDEX_BYTES = 256 << 20  # of a zip's index, read at once: about two million members
UTF8_NAME = 0x800
ENCRYPTED = 0x1
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile does not bound the output of the others


@dataclass(frozen=True)
class Limits:
    """Bounds on the content of an archive: a few kilobytes can unpack to petabytes."""

    members: int = 2_000_000
    member_bytes: int = 1 << 30
    total_bytes: int = 200 << 30
    ratio: int = 200
    """Maximum ratio of unpacked to packed bytes …"""
    ratio_from_bytes: int = 100 << 20
    """… checked once this many bytes are unpacked: a single black bitmap may exceed it."""

    def check_total(self, unpacked: int, packed: int) -> None:
        """Raise `MalformedFileError` if the totals exceed the limits."""
        if unpacked > self.total_bytes:
            raise MalformedFileError(f"it unpacks to more than {self.total_bytes:,} bytes.")
        if unpacked > self.ratio_from_bytes and unpacked > self.ratio * packed:
            raise MalformedFileError(
                f"it unpacks to more than {self.ratio} times its {packed:,} bytes. No archive of images does."
            )

    def check_member(self, name: str, size: int) -> None:
        """Raise `MalformedFileError` if a file is too large."""
        if not 0 <= size <= self.member_bytes:
            raise MalformedFileError(
                f"{name!r} has {size:,} bytes; no image has more than {self.member_bytes:,}."
            )


LIMITS = Limits()


@dataclass(frozen=True)
class _Member:
    name: str
    """Relative, with `/` between the parts; ends in `/` for a folder."""
    is_special: bool


class ZipArchive:
    """A zip archive, with random access to its members from any thread."""

    def __init__(self, path: Path) -> None:
        self._packed_bytes = path.stat().st_size
        self._file = _ZipFile(path)
        try:
            self._zip = zipfile.ZipFile(self._file)
        except BaseException:
            self._file.close()
            raise
        self._infos: dict[str, zipfile.ZipInfo] = {}
        self._lock = threading.Lock()  # zipfile updates its count of open members without one

    def close(self) -> None:
        self._zip.close()
        self._file.close()

    def members(self) -> Iterator[_Member]:
        """Yield all members, in archive order."""
        for info in self._zip.infolist():
            name = _zip_name(info)
            is_folder = name.endswith("/")
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archiver recorded none
            is_special = kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG)
            member = _member(name, is_folder, is_special)
            if info.flag_bits & ENCRYPTED:
                raise MalformedFileError(f"{name!r} is encrypted. Unpack it with its password first.")
            if not is_special:
                self._infos[member.name] = info
            yield member

    def check_sizes(self, names: Iterable[str]) -> None:
        """Raise `MalformedFileError` unless these members can be unpacked within the limits."""
        unpacked = 0
        for name in names:
            info = self._infos[name]
            if info.compress_type not in METHODS:
                raise MalformedFileError(
                    f"{name!r} is compressed by method {info.compress_type}; only stored and deflated"
                    " members are supported. Unpack it first."
                )
            LIMITS.check_member(name, info.file_size)
            unpacked += info.file_size
            LIMITS.check_total(unpacked, self._packed_bytes)

    def read_chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a member in chunks. Raises `UnreadableFileError`."""
        try:
            with self._lock:
                file = self._zip.open(self._infos[name])
            try:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk
            finally:
                with self._lock:
                    file.close()
        except DAMAGE as error:
            raise UnreadableFileError(f"damaged in the archive: {one_line(error)}") from error


class TarArchive:
    """A tar archive, compressed or not, with sequential access to its members."""

    def __init__(self, path: Path, compression: str) -> None:
        self._path = path
        self._compression = compression  # "gzip", "bzip2" or ""
        self._sizes: dict[str, int] = {}

    def close(self) -> None:
        pass

    def members(self) -> Iterator[_Member]:
        """Yield all members, in archive order. Raises `MalformedFileError` for an invalid archive."""
        with self._stream() as stream:
            for member, info in _tar_members(stream):
                if not member.name.endswith("/") and not member.is_special:
                    self._sizes[member.name] = info.size
                yield member
            if self._compression:
                stream.drain()

    def check_sizes(self, names: Iterable[str]) -> None:
        """Raise `MalformedFileError` for a file that is too large; the total is checked while reading."""
        for name in names:
            LIMITS.check_member(name, self._sizes[name])

    def contents(self, wanted: Mapping[str, int]) -> Iterator[tuple[int, int, Iterator[bytes]]]:
        """Yield (the value of a member's name in `wanted`, its size, its bytes) in archive order.

        A member's bytes must be consumed before the next member is requested.
        """
        with self._stream() as stream:
            for member, info in _tar_members(stream):
                if member.name in wanted and not member.is_special:
                    yield wanted[member.name], info.size, stream.chunks(info.offset_data, info.size)

    @contextmanager
    def _stream(self) -> Iterator[TarStream]:
        # An uncompressed tar cannot expand.
        packed_bytes = self._path.stat().st_size if self._compression else sys.maxsize
        with self._path.open("rb") as file:
            unpacked: IO[bytes] = file
            if self._compression == "gzip":
                unpacked = cast(IO[bytes], gzip.GzipFile(fileobj=file))
            elif self._compression == "bzip2":
                unpacked = cast(IO[bytes], bz2.BZ2File(file))
            with unpacked:
                yield TarStream(
                    unpacked,
                    can_seek=not self._compression,
                    check=lambda position: LIMITS.check_total(position, packed_bytes),
                )


class _ZipFile(io.BufferedReader):
    """The file of a zip, which refuses reads of more than `MAX_INDEX_BYTES`."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > MAX_INDEX_BYTES:
            raise MalformedFileError(f"its index has more than {MAX_INDEX_BYTES:,} bytes.")
        return super().read(size)


Archive = ZipArchive | TarArchive


@contextmanager
def open_archive(path: Path) -> Iterator[Archive]:
    """Open the archive in a file; closed on exit. Raises `MalformedFileError` for an unsupported format."""
    archive = _opened(path)
    try:
        yield archive
    finally:
        archive.close()


def list_archive(archive: Archive) -> tuple[Listing, str]:
    """Return the images, listed as for plain folders, and the folder around all of them, such as `flowers/`.

    Images are ordered by name. Outer folders that contain everything else are skipped.
    Raises `MalformedFileError`.
    """
    ignored: Counter[str] = Counter()
    entries = _entries(archive, ignored)
    around = _common_folder(entries[0], entries[-1]) if entries else ""
    listing = _listing([entry[len(around) :] for entry in entries if entry != around], ignored)
    archive.check_sizes(around + name for name in listing.file_names)
    return listing, around


def _common_folder(first: str, last: str) -> str:
    """The innermost folder that contains both names, and so every name sorted between them."""
    length = next(
        (i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last))
    )
    return first[: first.rfind("/", 0, length) + 1]


def _opened(path: Path) -> Archive:
    try:
        with path.open("rb") as file:
            start = file.read(512)
        if start.startswith(b"\x1f\x8b"):
            return TarArchive(path, "gzip")
        if start.startswith(b"BZh"):
            return TarArchive(path, "bzip2")
        if start[257:262] == b"ustar":  # before zip: the last member of a tar may be a zip
            return TarArchive(path, "")
        if start.startswith(b"PK") or zipfile.is_zipfile(path):
            return ZipArchive(path)
        if _is_plain_tar(path):  # from before 1988, without the ustar magic
            return TarArchive(path, "")
    except DAMAGE as error:
        raise damaged(error) from error
    raise MalformedFileError("it is not an archive of a supported format.")


def _is_plain_tar(path: Path) -> bool:
    """Whether the file is an uncompressed tar; `tarfile.is_tarfile` would also accept xz."""
    try:
        with tarfile.open(path, "r:"):
            return True
    except tarfile.ReadError:
        return False


def _entries(archive: Archive, ignored: Counter[str]) -> list[str]:
    """The names of files and empty folders, sorted; folders end in `/`."""
    names = []
    for number, member in enumerate(archive.members(), 1):
        if number > LIMITS.members:
            raise MalformedFileError(f"it has more than {LIMITS.members:,} members.")
        parts = member.name.rstrip("/").split("/")
        if any(map(is_hidden, parts)):
            ignored["hidden entries"] += 1
        elif member.is_special:
            ignored["links and special files"] += 1
        elif parts != [""]:
            names.append(member.name)
    names.sort()
    entries = []
    for name, following in pairwise([*names, ""]):
        if not name.endswith("/"):
            if name == following:
                raise MalformedFileError(f"it holds {name!r} twice.")
            entries.append(name)
        elif not following.startswith(name):  # a folder's content sorts directly after it
            entries.append(name)
    return entries


def _listing(entries: list[str], ignored: Counter[str]) -> Listing:
    loose: list[str] = []
    files: dict[str, list[str]] = {}
    nested: set[tuple[str, str]] = set()
    for entry in entries:
        category, *rest = entry.split("/")
        if not rest:
            if category in (META, "images.lst", schema.SCHEMA):
                raise MalformedFileError(
                    "it already contains an ImageDirectory. Unpack it; no conversion is needed."
                )
            if _is_image(category, ignored):
                loose.append(category)
            continue
        files.setdefault(category, [])
        if len(rest) > 1:
            nested.add((category, rest[0]))
        elif rest[0] and _is_image(rest[0], ignored):
            files[category].append(rest[0])
    if nested:
        ignored[NESTED] = len(nested)
    return list_folders(tuple(files), files.pop, loose, ignored)


def _is_image(name: str, ignored: Counter[str]) -> bool:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix not in SUFFIXES:
        ignored[f"files of another kind ({suffix or 'no suffix'})"] += 1
    return suffix in SUFFIXES


def _member(name: str, is_folder: bool, is_special: bool) -> _Member:
    windows = PureWindowsPath(name)  # treats both kinds of slashes as separators
    if windows.root or ".." in windows.parts or not (is_inner_path(name) or name in ("", ".", "./")):
        raise MalformedFileError(f"its member {name!r} points outside the archive. Do not trust it.")
    parts = PurePosixPath(name).parts
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise MalformedFileError(f"its member {name[:40]!r}… has a name of more than {MAX_NAME_BYTES} bytes.")
    return _Member("/".join(parts) + ("/" if is_folder else ""), is_special)


def _zip_name(info: zipfile.ZipInfo) -> str:
    name = info.filename
    if not info.flag_bits & UTF8_NAME:
        with suppress(UnicodeError):  # macOS writes UTF-8 without setting the flag
            name = name.encode("cp437").decode()
    return name.replace("\\", "/")


def _tar_members(stream: TarStream) -> Iterator[tuple[_Member, tarfile.TarInfo]]:
    stream.allow(MAX_HEADER_BYTES)
    try:
        tar = tarfile.TarFile(fileobj=stream, mode="r", encoding="utf-8")
    except DAMAGE as error:
        raise MalformedFileError(f"there is no tar in it: {one_line(error)}.") from error
    with tar:
        while (info := _next(tar)) is not None:
            # Both only ever grow: the list of members read so far, and the global pax headers.
            tar.members.clear()  # type: ignore[attr-defined]  # missing in typeshed
            tar.pax_headers = {}
            is_special = not (info.isfile() or info.isdir()) or info.issparse()
            yield _member(info.name, info.isdir(), is_special), info
            stream.allow(MAX_HEADER_BYTES)
    # tarfile takes a damaged header for the end. The real end is a block of zeros.
    if stream.last_read != bytes(tarfile.BLOCKSIZE):
        raise MalformedFileError("it is damaged or cut short: neither a header nor the end was found.")


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    try:
        return tar.next()
    except DAMAGE as error:
        raise damaged(error) from error
