"""The listing of an image directory, and of the images in plain folders.

Millions of file names are in one buffer: 34 MB where a list takes 228.
"""

import os
import pickle
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, SupportsIndex

import numpy as np

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.formats.label_kinds import ONE_PER_IMAGE, LabelKind
from train_pytorch_model.formats.reading import MalformedFileError, is_really_inside

UNLABELLED = -1
# Keys of `Listing.ignored`.
LOOSE = "images beside the category folders"
LINKED = "links to files outside, which are not followed (`cp -rL` makes a copy with real files)"
UNUSABLE_LINK = "links to folders or to nothing"
IMAGE = ""  # not ignored …
FOLDER = "folders"  # … and neither are these
UNPACKED_RECORD = ".unpacked.json"  # of `fit`: of which archive a folder is; no hidden entry
_NUMBER = re.compile(r"\d+")
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".ppm", ".bmp", ".pgm"}
    | {".tif", ".tiff", ".webp", ".avif", ".heic", ".heif", ".hif"}
)
# What macOS puts into archives, and network storage, Linux and Windows into folders.
SYSTEM_FOLDERS = frozenset(
    {"__MACOSX", "Temporary Items", "Network Trash Folder", "lost+found", "__pycache__"}
    | {"@eaDir", "@tmp", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", "~snapshot"}
    | {"$RECYCLE.BIN", "RECYCLER", "System Volume Information"}
)


class UnlabelledRowsError(Exception):
    """Rows lack the category that their directory declares; the text lists them."""


class PackedNames(Sequence[str]):
    """An immutable sequence of file names, which may have undecodable bytes, in one blob."""

    def __init__(self, blob: bytes | bytearray | memoryview, offsets: np.ndarray) -> None:
        # All names, concatenated; with the offsets, it identifies the list, for hashing.
        self.blob = blob
        self.offsets = offsets  # (N + 1,), int64

    def select(self, indices: np.ndarray) -> "PackedNames":
        """Return the names at `indices`, in that order."""
        starts = self.offsets[indices]
        ends = self.offsets[indices + 1]
        blob = bytearray()
        for start, end in zip(starts, ends, strict=True):
            blob += self.blob[start:end]
        return PackedNames(blob, np.append(0, np.cumsum(ends - starts)))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # slices: not needed
        if not 0 <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(bytes(self.blob[self.offsets[index] : self.offsets[index + 1]]))

    def __iter__(self) -> Iterator[str]:
        for start, end in pairwise(self.offsets.data):
            yield os.fsdecode(bytes(self.blob[start:end]))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Pickle the names, without a copy if the protocol supports that."""
        blob = pickle.PickleBuffer(self.blob) if int(protocol) >= 5 else bytes(self.blob)
        return PackedNames, (blob, self.offsets)


class Packer:
    """Builds a `PackedNames` incrementally."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._blob = bytearray()
        self._ends = array("q", [0])
        self.extend(names)

    def extend(self, names: Iterable[str]) -> None:
        """Add names, which may contain arbitrary bytes."""
        blob = self._blob
        ends = self._ends
        for name in map(os.fsencode, names):
            blob += name
            ends.append(len(blob))

    def finish(self) -> PackedNames:
        """Return the names added; nothing may be added afterwards."""
        return PackedNames(self._blob, np.frombuffer(self._ends, dtype=np.int64))


@dataclass(frozen=True)
class Listing:
    """The images of a directory, in item order."""

    file_names: PackedNames  # relative to the directory
    # (N,), int32: of each image the index of its category, or the number of its set, as `labels`
    # says; `UNLABELLED` throughout when there are no categories
    class_indices: np.ndarray
    categories: tuple[str, ...]
    columns: tuple[str, ...]  # the columns of a row except the image column
    ignored: Mapping[str, int]  # description of the entries that were skipped → their count
    repeated: int = 0  # the number of rows whose file has an earlier row; all are listed
    notes: tuple[str, ...] = ()  # sentences about how the folders and tables were understood
    origin: str = ""  # where the categories are from, if not from the names of folders
    labels: LabelKind = ONE_PER_IMAGE  # what the class indices stand for


def check_category_names(names: Sequence[str]) -> None:
    """Raise `MalformedFileError` unless the names are valid UTF-8 and visibly different."""
    for name in names:
        if not is_utf8(name):
            raise MalformedFileError(f"category {name!r} is not valid UTF-8.")
    counts = Counter(map(comparable, names))
    repeated = [name for name, count in counts.items() if count > 1]
    if repeated:
        hint = ""
        if len(set(names)) == len(names):
            hint = "They are written in different Unicode forms: put the images of each together."
        raise MalformedFileError(f"categories of the same name:{bulleted(repeated)}\n{hint}")


def is_utf8(name: str) -> bool:
    """Return whether a name can be encoded; one with undecodable bytes cannot."""
    return name == name.encode(errors="replace").decode()


def comparable(name: str) -> str:
    """Return the name in NFC: some systems, such as macOS, decompose accented letters."""
    return unicodedata.normalize("NFC", name)


def missing_names(names: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return the names that are not among others."""
    known = set(map(comparable, others))
    return [name for name in names if comparable(name) not in known]


def repeats_in(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of int64 keys that occur before, and the first index of each.

    Both are (R,), int64.
    """
    ordered = np.sort(keys)
    # No repetition is the usual case, found in a third of the time and memory.
    if not (ordered[1:] == ordered[:-1]).any():
        return np.empty(0, np.int64), np.empty(0, np.int64)
    _, indices, inverse = np.unique(keys, return_index=True, return_inverse=True)
    again = np.flatnonzero(indices[inverse] != np.arange(len(keys)))
    return again, indices[inverse[again]]


def evenly_spaced(count: int, at_most: int) -> np.ndarray:
    """Return indices from the first to the last, always the same: (min(count, at_most),), int64."""
    return np.linspace(0, count - 1, min(count, at_most), dtype=np.int64)


def natural_order(name: str) -> str:
    """Return a case-insensitive key: `class2` before `class10`.

    It ends in the name: no two are equal.
    """
    return f"{_NUMBER.sub(_sortable, name.lower())}\0{name}"


def _sortable(number: re.Match[str]) -> str:
    """Return a key that sorts numbers by their length first, and before all letters."""
    digits = str(int(number[0]))
    return f"\1{chr(len(digits))}{digits}"


def is_hidden(name: str) -> bool:
    """Return whether an entry of a data set is hidden or metadata: no category and no image."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def suffix_of(name: str) -> str:
    """Return the suffix of a file in lower case, such as `.jpg`."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122, 5x faster than a Path


def read_images_at_any_depth(root: Path) -> Listing:
    """List the images of a folder and of the folders in it, unlabelled.

    Raises `MalformedFileError`.
    """
    ignored: Counter[str] = Counter()
    return list_unlabelled(list_images(root, "", ignored), ignored)


def list_images(root: Path, folder: str, ignored: Counter[str]) -> list[str]:
    """Return the images at any depth in a folder of `root`, relative to the folder, in any order.

    Raises `MalformedFileError`.
    """
    names: list[str] = []
    folders = [""]
    while folders:
        inside = folders.pop()
        inner, files = list_folder(root, folder + inside, ignored)
        folders += [f"{inside}{name}/" for name in inner]
        names += [f"{inside}{name}" for name in files] if inside else files
    return names


def list_unlabelled(names: Iterable[str], ignored: Mapping[str, int]) -> Listing:
    """Return images without categories, in natural order."""
    packed = Packer(sorted(names, key=natural_order)).finish()
    class_indices = np.full(len(packed), UNLABELLED, dtype=np.int32)
    return Listing(packed, class_indices, categories=(), columns=("id",), ignored=dict(ignored))


def list_folder(
    root: Path, folder: str, ignored: Counter[str], refuses_links: bool = False
) -> tuple[list[str], list[str]]:
    """Return the folders and the image files in a folder of `root`; everything else is counted.

    `refuses_links` is for links to folders. Raises `MalformedFileError`.
    """
    path = root / folder
    folders: list[str] = []
    files: list[str] = []
    links: list[str] = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                name = entry.name
                if name == UNPACKED_RECORD:
                    continue
                is_named_like_image = suffix_of(name) in SUFFIXES and not is_hidden(name)
                # Nearly all entries are regular files; the others are worth more calls.
                if is_named_like_image and entry.is_file(follow_symlinks=False):
                    files.append(name)
                    continue
                kind = _kind_of(entry, root)
                if kind == IMAGE:
                    files.append(name)
                elif kind == FOLDER:
                    folders.append(name)
                elif kind == UNUSABLE_LINK and refuses_links and Path(entry.path).is_dir():
                    links.append(repr(name))
                else:
                    ignored[kind] += 1
    except OSError as error:
        raise MalformedFileError(f"{path.name} cannot be listed: {error.strerror}.") from error
    if links:  # without them, categories would be missing
        raise MalformedFileError(
            f"links to folders are not followed, and these are links:{bulleted(sorted(links))}\n"
            "`cp -rL` makes a copy with real folders and files."
        )
    return folders, files


def _kind_of(entry: "os.DirEntry[str]", root: Path) -> str:
    """Return what an entry of a folder is: `IMAGE`, `FOLDER`, or as `Listing.ignored` counts it."""
    if entry.name.endswith(".icloud"):
        return "placeholders of iCloud, whose files have to be downloaded first"
    if is_hidden(entry.name):
        return "hidden entries"
    if entry.is_dir(follow_symlinks=False):
        return FOLDER
    if entry.is_symlink():
        path = Path(entry.path)
        if not path.is_file():
            return UNUSABLE_LINK
        if not is_really_inside(root, path):
            return LINKED
    elif not entry.is_file():
        return "special files"
    suffix = suffix_of(entry.name)
    return IMAGE if suffix in SUFFIXES else f"files of another kind ({suffix or 'no suffix'})"
