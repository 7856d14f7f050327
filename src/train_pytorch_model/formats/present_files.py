"""Which of the files exist that a list or a table names."""

import os
from pathlib import Path

from train_pytorch_model.formats.reading import is_really_inside


class PresentFiles:
    """Which files exist: each folder is listed once; a `stat` per file takes minutes on a mount."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._folders: dict[str, dict[str, bool] | str] = {}

    def problem_with(self, name: str) -> str:
        """Return why a file cannot be used, as the end of a sentence; empty if it can."""
        folder, _, file = name.rpartition("/")
        if folder not in self._folders:
            self._folders[folder] = self._list(self.root / folder)
        entries = self._folders[folder]
        if isinstance(entries, str):
            return entries
        if file not in entries:
            return "does not exist"
        if not entries[file]:
            path = self.root / name
            if not is_really_inside(self.root, path):
                return "is a link that points outside the directory"
            if not path.is_file():
                return "is not a file"
        return ""

    def _list(self, path: Path) -> dict[str, bool] | str:
        """Return whether each entry of a folder is a regular file, or the folder's problem."""
        if not is_really_inside(self.root, path):
            return "is in a folder that links outside the directory"
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.is_file(follow_symlinks=False) for entry in entries}
        except OSError:
            return "does not exist"
