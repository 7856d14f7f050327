"""The listing of an image directory: file names, class indices, categories.

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
from typing import Any, SupportsIndex

import numpy as np

from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.words.errors import bulleted

UNLABELLED = -1
# Keys of `Listing.ignored`.
NESTED = "folders inside category folders, whose images are not read (move them up)"
LOOSE = "images beside the category folders"
LINKED = "links to files outside, which are not followed (`cp -rL` makes a copy with real files)"
ITERATED_AT_ONCE = 1 << 12
_NUMBER = re.compile(r"\d+")


class UnlabelledRowsError(Exception):
    """Rows lack the category that their directory declares; the text lists them."""


class PackedNames(Sequence[str]):
    """An immutable sequence of file names, stored as bytes in one blob; arbitrary bytes are preserved."""

    def __init__(self, blob: bytes | bytearray | memoryview, offsets: np.ndarray) -> None:
        self.blob = blob
        """All names, concatenated; with `lengths`, it identifies the list, for hashing."""
        self._offsets = offsets  # (N + 1,), int64

    @classmethod
    def pack(cls, names: Iterable[str]) -> "PackedNames":
        packer = Packer()
        packer.extend(names)
        return packer.finish()

    def select(self, indices: np.ndarray) -> "PackedNames":
        """Return the names at `indices`, in that order."""
        starts, ends = self._offsets[indices], self._offsets[indices + 1]
        packer = Packer()
        packer.extend_encoded(self.blob[start:end] for start, end in zip(starts, ends, strict=True))
        return packer.finish()

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices: they are not needed
        if not 0 <= index < len(self):
            raise IndexError(index)
        return os.fsdecode(bytes(self.blob[self._offsets[index] : self._offsets[index + 1]]))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ITERATED_AT_ONCE):
            offsets = self._offsets[start : start + ITERATED_AT_ONCE + 1].tolist()
            for begin, end in pairwise(offsets):
                yield os.fsdecode(bytes(self.blob[begin:end]))

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """For pickle; out of band if the protocol supports it, so that the names are not copied."""
        blob = pickle.PickleBuffer(self.blob) if int(protocol) >= 5 else bytes(self.blob)
        return PackedNames, (blob, self._offsets)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self._offsets)


class Packer:
    """Builds a `PackedNames` incrementally."""

    def __init__(self) -> None:
        self._blob = bytearray()
        self._ends = array("q", [0])

    def extend(self, names: Iterable[str]) -> None:
        """Add names, which may contain arbitrary bytes."""
        self.extend_encoded(map(os.fsencode, names))

    def extend_encoded(self, names: Iterable[bytes | bytearray | memoryview]) -> None:
        blob, ends = self._blob, self._ends
        for name in names:
            blob += name
            ends.append(len(blob))

    def finish(self) -> PackedNames:
        """Return the names added; nothing may be added afterwards."""
        return PackedNames(self._blob, np.frombuffer(self._ends, dtype=np.int64))


@dataclass(frozen=True)
class Listing:
    """The images of a directory, in item order."""

    file_names: PackedNames
    """Relative to the directory."""
    class_indices: np.ndarray
    """(N,), int32; `UNLABELLED` throughout when there are no categories."""
    categories: tuple[str, ...]
    columns: tuple[str, ...]
    """The columns of a row except the image column."""
    ignored: Mapping[str, int]
    """Description of the entries that were skipped → their count."""
    repeated: int = 0
    """The number of rows whose file already has an earlier row; they are kept."""


def check_category_names(names: Sequence[str]) -> None:
    """Raise `MalformedFileError` unless the names are valid UTF-8 and visibly different."""
    for name in names:
        if not is_utf8(name):
            raise MalformedFileError(f"category {name!r} is not valid UTF-8.")
    if twice := [name for name, count in Counter(map(comparable, names)).items() if count > 1]:
        raise MalformedFileError(f"categories of the same name:{bulleted(twice)}\n")


def is_utf8(name: str) -> bool:
    """Whether a name can be encoded: one with undecodable bytes, which the system escapes, cannot."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def comparable(name: str) -> str:
    """Return the name in NFC: some systems, such as macOS, decompose accented letters."""
    return unicodedata.normalize("NFC", name)


def first_rows(keys: np.ndarray) -> np.ndarray:
    """Return (N,), int64: for each of N int64 keys, the index of the first equal key; mostly its own."""
    places = np.arange(len(keys))
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():  # the usual case, in a third of the time and memory
        return places
    order = np.argsort(keys, kind="stable")
    is_new = np.append(True, keys[order[1:]] != keys[order[:-1]])[: len(keys)]
    firsts = np.empty_like(places)
    firsts[order] = order[np.maximum.accumulate(np.where(is_new, places, 0))]
    return firsts


def evenly_spaced(count: int, at_most: int) -> np.ndarray:
    """Return (min(count, at_most),), int64: indices from the first to the last, always the same."""
    return np.linspace(0, count - 1, min(count, at_most), dtype=np.int64)


def natural_order(name: str) -> str:
    """Return a case-insensitive key: `class2` before `class10`. It ends in the name: no two are equal."""
    return f"{_NUMBER.sub(_sortable, name.lower())}\0{name}"


def _sortable(number: re.Match[str]) -> str:
    """Encode a number so that it sorts numerically as text, its length first, and before all letters."""
    digits = str(int(number[0]))
    return f"\1{chr(len(digits))}{digits}"
