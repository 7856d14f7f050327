"""Archives of images, unpacked into a folder: .zip, .tar, and a tar compressed by gzip or bzip2.

A member path that points outside, encryption, damage, or a size beyond the limits makes the whole
archive invalid. Links, devices and hidden members are counted, but never created; files that are
neither images nor tables of their categories are created empty, to be counted as well. The content
tells the format, not the suffix. Names in a zip are in UTF-8, which few archives say, or in the
encoding of the Windows that made it.
"""

import bz2
import gzip
import io
import os
import re
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import cast

from train_pytorch_model.formats.listing import SUFFIXES, is_hidden, suffix_of
from train_pytorch_model.formats.reading import META, MalformedFileError, is_inner_path, one_line
from train_pytorch_model.formats.schema import SCHEMA
from train_pytorch_model.formats.table_files import is_table
from train_pytorch_model.machine.console import logger

KINDS = ".zip, .tar, .tar.gz, .tgz, .tar.bz2, .gz, .bz2"
MAX_NAME_BYTES = 255  # of one folder or file; the limit of common file systems
MAX_DEPTH = 16  # folders around a file, each of which is created
MAX_HEADER_BYTES = 1 << 18  # of a tar header, read at once; a member may have hundreds
CHUNK_BYTES = 1 << 17
ENCRYPTED = 0x1
DIRECTORY_FILES = (META, "images.lst", SCHEMA)  # of an ImageDirectory
# zipfile does not bound the output of the other methods.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
UTF8_FLAG = 0x800
UNICODE_PATH = 0x7075  # Info-ZIP's extra field: version, CRC of the name, the name in UTF-8
CJK = r"\u3000-\u303f\u4e00-\u9fff\uff01-\uff5e"
CERTAIN = ("ascii", "utf-8")  # what is valid in them is rarely anything else
# Encoding → the characters of its names besides ASCII, in the order in which they are tried. What
# is valid in several is rarely plausible in more than one: half-width kana, box drawing and rare
# ideographs are left out.
ENCODINGS: Mapping[str, str] = {
    "cp932": rf"\u3041-\u30ff{CJK}",
    "cp949": r"\uac00-\ud7a3",
    "gb2312": CJK,
    "big5": CJK,
    "cp866": "\u0410-\u044f\u0401\u0451",
    "cp850": r"\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u00ff",
}
MIN_HANGUL = 6  # different ones: a few Korean syllables may as well be Chinese
MIN_CYRILLIC = 3  # letters of the longest word

# Bounds on the content: a few kilobytes can unpack to petabytes.
MAX_MEMBERS = 2_000_000
MAX_INDEX_BYTES = 256 << 20  # of a zip's index, which is read at once: about two million members
MAX_MEMBER_BYTES = 1 << 30
MAX_TOTAL_BYTES = 200 << 30
MAX_RATIO = 200  # of unpacked to packed bytes …
# … once this many bytes are unpacked: a single black bitmap may exceed it.
RATIO_FROM_BYTES = 100 << 20

# What gzip, bz2, zipfile and tarfile raise for damaged data.
DAMAGE = (
    EOFError,
    NotImplementedError,
    OSError,
    OverflowError,
    RecursionError,
    ValueError,
    struct.error,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def extract(path: Path, root: Path) -> "Unpacked":
    """Unpack into the empty folder `root`. Raises `MalformedFileError`, `OSError` of writing."""
    content = Unpacked(root)
    if not os.access(path, os.R_OK):
        raise MalformedFileError("it cannot be read: Permission denied.")
    try:
        with path.open("rb") as file:
            start = file.read(tarfile.BLOCKSIZE)
            is_zip = start.startswith(b"PK") or zipfile.is_zipfile(file)
        if start.startswith((b"\x1f\x8b", b"BZh")):
            content.packed_bytes = path.stat().st_size
            unpacked = gzip.GzipFile(path) if start.startswith(b"\x1f\x8b") else bz2.BZ2File(path)
            _unpack_tar(cast(io.RawIOBase, unpacked), content, "there is no tar in it")
        # Tar before zip: the last member of a tar may be a zip. And before 1988, a tar had no
        # "ustar" in it.
        elif is_zip and start[257:262] != b"ustar":
            content.packed_bytes = path.stat().st_size
            _unpack_zip(path, content)
        else:
            _unpack_tar(io.FileIO(path), content, "it is not an archive of a supported format")
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the data
            raise
        raise MalformedFileError(f"it is damaged or cut short: {one_line(error)}.") from error
    return content


def _is_data(name: str) -> bool:
    return suffix_of(name) in SUFFIXES or name in DIRECTORY_FILES or is_table(PurePosixPath(name))


class Unpacked:
    """What has been unpacked of an archive, and what is admitted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.packed_bytes = sys.maxsize  # what is not compressed cannot expand
        self.ignored: Counter[str] = Counter()
        # Files that are damaged in the archive, and unpacked empty → the reason.
        self.unreadable: dict[Path, str] = {}
        self._folders = {root}
        self._members = 0
        self._image_bytes = 0

    @cached_property
    def folder(self) -> Path:
        """Return the innermost folder that contains all images and their table.

        A README may lie beside it.
        """
        folder = self.root
        while True:
            entries = list(os.scandir(folder))
            folders = [entry.name for entry in entries if entry.is_dir()]
            has_data = any(_is_data(entry.name) for entry in entries)
            if has_data or len(folders) != 1:
                return folder
            folder = folder / folders[0]

    def admit(self, name: str, size: int, is_folder: bool, is_special: bool) -> str:
        """Create a member, empty; return the name of one to be unpacked.

        Raises `MalformedFileError`.
        """
        self._members += 1
        if max(self._members, len(self._folders)) > MAX_MEMBERS:
            raise MalformedFileError(f"it has more than {MAX_MEMBERS:,} members.")
        parts = _check_parts(name)
        path = self.root.joinpath(*parts)
        if any(map(is_hidden, parts)):
            self.ignored["hidden entries"] += 1
            return ""
        if is_special:
            self.ignored["links and special files"] += 1
            return ""
        try:
            self._make_folder(path if is_folder else path.parent)
            if not is_folder:
                path.touch(exist_ok=False)
        except FileExistsError as error:
            repeated = Path(error.filename).relative_to(self.root).as_posix()
            raise MalformedFileError(f"it holds {repeated!r} twice.") from None
        if is_folder or (
            suffix_of(name) not in SUFFIXES and not is_table(PurePosixPath(parts[-1]))
        ):
            return ""
        inner = "/".join(parts)
        self._add_size(inner, size)
        return inner

    def _add_size(self, inner: str, size: int) -> None:
        if not 0 <= size <= MAX_MEMBER_BYTES:
            raise MalformedFileError(
                f"{inner!r} has {size:,} bytes; at most {MAX_MEMBER_BYTES:,} are read."
            )
        self._image_bytes += size
        self.check_total(self._image_bytes)

    def _make_folder(self, folder: Path) -> None:
        if folder not in self._folders:
            self._make_folder(folder.parent)
            folder.mkdir()
            self._folders.add(folder)

    def check_total(self, unpacked_bytes: int) -> None:
        """Raise `MalformedFileError` if this many bytes exceed the limits."""
        if unpacked_bytes > MAX_TOTAL_BYTES:
            raise MalformedFileError(f"it unpacks to more than {MAX_TOTAL_BYTES:,} bytes.")
        if unpacked_bytes > RATIO_FROM_BYTES and unpacked_bytes > MAX_RATIO * self.packed_bytes:
            raise MalformedFileError(
                f"it unpacks to more than {MAX_RATIO} times its {self.packed_bytes:,} bytes."
                " No archive of images does."
            )


def _unpack_zip(path: Path, content: Unpacked) -> None:
    with (
        _BoundedReads(io.FileIO(path), MAX_INDEX_BYTES, "its index") as file,
        zipfile.ZipFile(file) as archive,
    ):
        names, encoding = _decode_names(archive.infolist())
        if encoding:
            logger.warning(f"{path.name}: its names are not in UTF-8, and are read as {encoding}.")
        for info, decoded in zip(archive.infolist(), names, strict=True):
            name = decoded.replace("\\", "/")
            is_folder = name.endswith("/")
            kind = stat.S_IFMT(info.external_attr >> 16)  # 0 where the archiver recorded none
            is_special = kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG)
            if info.flag_bits & ENCRYPTED:
                raise MalformedFileError(
                    f"{name!r} is encrypted. Unpack it with its password first."
                )
            info.filename = content.admit(name, info.file_size, is_folder, is_special)
            if not info.filename:
                continue
            if info.compress_type not in METHODS:
                raise MalformedFileError(
                    f"{info.filename!r} is compressed by method {info.compress_type}; only stored"
                    " and deflated members are supported. Unpack it first."
                )
            try:
                archive.extract(info, content.root)
            except DAMAGE as error:  # one image that is damaged leaves the others as they are
                if isinstance(error, OSError):
                    raise
                target = content.root / info.filename
                target.write_bytes(b"")
                content.unreadable[target] = f"damaged in the archive: {one_line(error)}"


def _unpack_tar(unpacked: io.RawIOBase, content: Unpacked, problem: str) -> None:
    """Unpack a tar; `problem` is the message for bytes that do not begin as one."""
    with _BoundedReads(unpacked, MAX_HEADER_BYTES, "a header") as stream:
        try:
            archive = tarfile.TarFile(fileobj=stream, encoding="utf-8")
        except tarfile.ReadError as error:
            raise MalformedFileError(f"{problem}.") from error
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # new in Python 3.11.4
        for info in iter(archive.next, None):
            # Both only ever grow: the list of members read so far, and the global pax headers.
            archive.members.clear()  # type: ignore[attr-defined]  # missing in typeshed
            archive.pax_headers = {}
            # Before it is skipped: that unpacks it, too.
            content.check_total(info.offset_data + info.size)
            is_special = not (info.isfile() or info.isdir()) or info.issparse()
            name = content.admit(info.name, info.size, info.isdir(), is_special)
            if name:
                info.name = name
                archive.extract(info, content.root, set_attrs=False)
        # tarfile takes a damaged header for the end. The real end is a block of zeros.
        if stream.last_read != bytes(tarfile.BLOCKSIZE):
            raise MalformedFileError(
                "it is damaged or cut short: neither a header nor the end was found."
            )
        while stream.read(CHUNK_BYTES):  # gzip and bzip2 verify their checksums at the end
            content.check_total(stream.tell())


def _check_parts(name: str) -> tuple[str, ...]:
    """Return the parts of a member's path; none for the archive's root.

    Raises `MalformedFileError`.
    """
    windows = PureWindowsPath(name)  # treats both kinds of slashes as separators
    is_root = name in ("", ".", "./")
    if windows.root or ".." in windows.parts or not (is_root or is_inner_path(name)):
        raise MalformedFileError(
            f"its member {name!r} points outside the archive. Do not trust it."
        )
    parts = PurePosixPath(name).parts
    if any(len(os.fsencode(part)) > MAX_NAME_BYTES for part in parts):
        raise MalformedFileError(
            f"its member {name[:40]!r}… has a name of more than {MAX_NAME_BYTES} bytes."
        )
    if len(parts) > MAX_DEPTH + 1:
        raise MalformedFileError(f"its member {name[:40]!r}… is in more than {MAX_DEPTH} folders.")
    return parts


class _BoundedReads(io.BufferedReader):
    """A file that refuses large reads: an index is read at once, whatever size it declares."""

    def __init__(self, raw: io.RawIOBase, limit: int, what: str) -> None:
        super().__init__(raw, CHUNK_BYTES)
        self._limit = limit
        self._what = what
        self.last_read = b""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > self._limit:
            raise MalformedFileError(f"{self._what} has more than {self._limit:,} bytes.")
        self.last_read = super().read(size)
        return self.last_read


def _decode_names(members: Sequence[zipfile.ZipInfo]) -> tuple[list[str], str]:
    """Return the names of all members, and the encoding if it was guessed.

    Raises `MalformedFileError`.
    """
    names = [_unicode_name(info) for info in members]
    raw = [
        info.orig_filename.encode("cp437")
        for info, name in zip(members, names, strict=True)
        if not name
    ]
    encoding = _encoding_of(raw)
    decoded = (name.decode(encoding) for name in raw)
    names = [name or next(decoded) for name in names]
    return names, "" if encoding in CERTAIN else encoding


def _encoding_of(raw: Sequence[bytes]) -> str:
    for encoding in (*CERTAIN, *ENCODINGS):
        if _is_plausible(encoding, raw):
            return encoding
    raise MalformedFileError(
        "its names are in an unknown encoding. Unpack it where it was made, or with `unzip -O"
        " ENCODING`, and name the folder."
    )


def _unicode_name(info: zipfile.ZipInfo) -> str:
    """Return a member's name if it is known to be right; else an empty text."""
    if info.flag_bits & UTF8_FLAG:
        return info.orig_filename
    raw = info.orig_filename.encode("cp437")
    extra = info.extra
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == UNICODE_PATH and extra[5:9] == struct.pack("<I", zlib.crc32(raw)):
            return extra[9 : 4 + size].decode(errors="replace")
        extra = extra[4 + size :]
    return ""


def _is_plausible(encoding: str, raw: Iterable[bytes]) -> bool:
    """Return whether names are valid in an encoding, and look like names of its languages."""
    try:
        text = "\n".join(name.decode(encoding) for name in raw)
    except UnicodeError:
        return False
    if encoding in CERTAIN:
        return True
    letters = {letter for letter in text if not letter.isascii()}
    if not re.fullmatch(f"[{ENCODINGS[encoding]}]*", "".join(letters)):
        return False
    if encoding == "cp949":
        return len(letters) >= MIN_HANGUL
    if encoding == "cp866":
        return _is_cyrillic(text)
    return True


def _is_cyrillic(text: str) -> bool:
    # The same bytes are accented letters, which stand among others of their word.
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not word.isascii()]
    is_mixed = any(any(map(str.isascii, word)) for word in words)
    return not is_mixed and any(len(word) >= MIN_CYRILLIC for word in words)
