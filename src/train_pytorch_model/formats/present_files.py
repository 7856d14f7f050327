"""Which of the files that a list names exist: a `stat` per file would take minutes on a mount."""

import os
from array import array
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from train_pytorch_model.formats.reading import is_really_inside


def hashes_of_files(root: Path, folders: Iterable[str]) -> "array[int]":
    """Return the hashes of the names, in the form of `images.lst`, of all regular files in these folders."""
    hashes = array("q")
    for folder in folders:
        path = root / folder
        if not is_really_inside(root, path):
            continue
        before = f"{folder}/" if folder else ""
        with suppress(OSError), os.scandir(path) as entries:
            hashes.extend(
                hash(before + entry.name) for entry in entries if entry.is_file(follow_symlinks=False)
            )
    return hashes


class PresentFiles:
    """Checks whether listed files exist by listing each folder once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folders: dict[str, dict[str, bool] | str] = {}

    def problem_with(self, name: str) -> str:
        """Return why a file cannot be used, as the end of a sentence; empty if it can."""
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._listing(folder)
        listing = self._folders[folder]
        if isinstance(listing, str):
            return listing
        if file not in listing:
            return "does not exist"
        if not listing[file]:
            path = self._root / name
            if not is_really_inside(self._root, path):
                return "is a link that points outside the directory"
            if not path.is_file():
                return "is not a file"
        return ""

    def _listing(self, folder: str) -> dict[str, bool] | str:
        path = self._root / folder
        if not is_really_inside(self._root, path):
            return "is in a folder that links outside the directory"
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        except OSError:
            return "does not exist"
