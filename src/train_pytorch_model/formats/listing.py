"""The listing of an image directory: file names, class indices, categories."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from train_pytorch_model.formats.packed import PackedNames
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.words.errors import bulleted

UNLABELLED = -1
# Keys of `Listing.ignored`.
NESTED = "folders inside category folders, whose images are not read (move them up)"
LOOSE = "images beside the category folders"
LINKED = "links to files outside, which are not followed (`cp -rL` makes a copy with real files)"

_NUMBER = re.compile(r"\d+")


class UnlabelledRowsError(Exception):
    """Rows lack the category that their directory declares; the text lists them."""


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
    counts = Counter(map(comparable, names))
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
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
