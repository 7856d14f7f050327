"""The image files below a folder, found by what a table calls them."""

import os
from functools import cached_property
from pathlib import Path, PurePosixPath

from train_pytorch_model.formats import listing
from train_pytorch_model.formats.labelled_rows import RowError, some

MAX_DEPTH = 64  # path components of a name that are tried


class ImageNames:
    """The image files below a folder, by their path, the end of it, with or without a suffix."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.names = list(listing.read_images_at_any_depth(root).file_names)
        self.other_case: list[str] = []  # names that were found only by ignoring case
        self._by_end: dict[str, list[str]] = {}
        for name in self.names:
            parts = PurePosixPath(name).parts
            for first in range(len(parts)):
                end = "/".join(parts[first:])
                for key in {end, os.path.splitext(end)[0]}:  # noqa: PTH122, of a part of a path
                    self._by_end.setdefault(key, []).append(name)

    @cached_property
    def _by_folded(self) -> dict[str, list[str]]:
        folded: dict[str, list[str]] = {}
        for end, names in self._by_end.items():
            folded.setdefault(end.casefold(), []).extend(names)
        return folded

    def find(self, named: str) -> list[str]:
        """Return the names, relative to the folder, of the files that may be meant."""
        ends = _ends_of(named)
        for end in ends:
            if end in self._by_end:
                return self._by_end[end]
        return []

    def finds(self, named: str) -> bool:
        """Return whether a file may be meant."""
        return bool(self.find(named))

    def finds_in_any_case(self, named: str) -> bool:
        """Return whether a file may be meant, in upper or lower case."""
        return bool(self._find_folded(named))

    def find_one(self, named: str) -> str | None:
        """Return the name of the file that is meant, if there is one. Raises `RowError`."""
        names = self.find(named)
        if not names:
            names = self._find_folded(named)
            self.other_case += names[:1]
        if len(names) > 1:
            raise RowError(f"image {named!r} may be any of {len(names)} files: {some(names)}")
        return names[0] if names else None

    def _find_folded(self, named: str) -> list[str]:
        ends = _ends_of(named)
        found = next((end for end in map(str.casefold, ends) if end in self._by_folded), None)
        return [] if found is None else self._by_folded[found]


def _ends_of(named: str) -> list[str]:
    """Return a path and its ends, the longest first."""
    parts = named.strip().replace("\\", "/").split("/")
    parts = [part for part in parts if part not in ("", ".")][-MAX_DEPTH:]
    return ["/".join(parts[first:]) for first in range(len(parts))]
