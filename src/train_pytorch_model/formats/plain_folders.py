"""Plain folders, `<category>/<file>`: the most common layout."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.listing import (
    LINKED,
    LOOSE,
    NESTED,
    UNLABELLED,
    Listing,
    PackedNames,
    Packer,
    check_category_names,
    natural_order,
)
from train_pytorch_model.formats.reading import META, MalformedFileError, is_really_inside
from train_pytorch_model.words.errors import bulleted

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


class NestedDataSetError(MalformedFileError):
    """A folder that would be a category is a data set."""

    def __init__(self, name: str) -> None:
        super().__init__(f"its folder {name!r} is a data set of its own, not a category.")
        self.name = name


def is_hidden(name: str) -> bool:
    """Whether an entry of a data set is hidden or metadata, and so not a category or image."""
    return name.startswith(".") or name in SYSTEM_FOLDERS


def suffix_of(name: str) -> str:
    """Return the suffix of a file in lower case, such as `.jpg`."""
    return os.path.splitext(name)[1].lower()  # noqa: PTH122, 5x faster than a Path


def read_plain_folders(root: Path) -> Listing:
    """List `<category>/<file>`, or unlabelled files at the root, in natural order.

    Raises `MalformedFileError`, also for invalid category names.
    """
    ignored: Counter[str] = Counter()
    folders, loose = _list_folder(root, root, ignored)
    categories = sorted(folders, key=natural_order)
    check_category_names(categories)
    if not categories:
        return list_unlabelled(loose, ignored)
    if loose:
        ignored[LOOSE] = len(loose)
    packer, counts = Packer(), []
    for category in categories:
        nested = ignored[NESTED]
        names_in_it = sorted(_list_folder(root, root / category, ignored)[1], key=natural_order)
        has_folders_only = not names_in_it and ignored[NESTED] > nested
        if (root / category / META).exists() or (has_folders_only and _has_class_folders(root / category)):
            raise NestedDataSetError(category)
        packer.extend(f"{category}/{name}" for name in names_in_it)
        counts.append(len(names_in_it))
    return Listing(
        file_names=packer.finish(),
        class_indices=np.repeat(np.arange(len(categories), dtype=np.int32), counts),
        categories=tuple(categories),
        columns=("id", "category"),
        ignored=dict(ignored),
    )


def read_images_at_any_depth(root: Path) -> Listing:
    """List the images of a folder and of the folders in it, unlabelled. Raises `MalformedFileError`."""
    ignored: Counter[str] = Counter()
    names: list[str] = []
    folders = [root]
    while folders:
        folder = folders.pop()
        inner, files = _list_folder(root, folder, ignored, with_folders=True)
        folders += [folder / name for name in inner]
        names += [(folder / name).relative_to(root).as_posix() for name in files]
    return list_unlabelled(names, ignored)


def list_unlabelled(names: Iterable[str], ignored: Mapping[str, int]) -> Listing:
    """Return images without categories, in natural order."""
    packed = PackedNames.pack(sorted(names, key=natural_order))
    class_indices = np.full(len(packed), UNLABELLED, dtype=np.int32)
    return Listing(packed, class_indices, categories=(), columns=("id",), ignored=dict(ignored))


def _list_folder(
    root: Path, folder: Path, ignored: Counter[str], with_folders: bool = False
) -> tuple[list[str], list[str]]:
    """Folders (of the root only, unless `with_folders`) and image files; everything else is counted."""
    folders: list[str] = []
    links: list[str] = []
    files: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".icloud"):
                    ignored["placeholders of iCloud, whose files have to be downloaded first"] += 1
                elif is_hidden(entry.name):
                    ignored["hidden entries"] += 1
                elif entry.is_dir(follow_symlinks=False):
                    if folder == root or with_folders:
                        folders.append(entry.name)
                    else:
                        ignored[NESTED] += 1
                elif folder == root and entry.is_symlink() and Path(entry.path).is_dir():
                    links.append(repr(entry.name))
                elif problem := _problem_with(entry, root):
                    ignored[problem] += 1
                elif (suffix := suffix_of(entry.name)) in SUFFIXES:
                    files.append(entry.name)
                else:
                    ignored[f"files of another kind ({suffix or 'no suffix'})"] += 1
    except OSError as error:
        raise MalformedFileError(f"{folder.name} cannot be listed: {error.strerror}.") from error
    if links:  # without them, categories would be missing
        raise MalformedFileError(
            f"links to folders are not followed, and these are links:{bulleted(sorted(links))}\n"
            "`cp -rL` makes a copy with real folders and files."
        )
    return folders, files


def _has_class_folders(folder: Path) -> bool:
    """Whether a folder holds folders of images."""
    with suppress(OSError):
        return any(suffix_of(path.name) in SUFFIXES for path in folder.glob("*/*"))
    return False


def _problem_with(entry: os.DirEntry[str], root: Path) -> str:
    """Return what an entry is that is no file of the data set; empty for a file."""
    if not entry.is_symlink():
        return "" if entry.is_file() else "special files"
    path = Path(entry.path)
    if not path.is_file():
        return "links to folders or to nothing"
    return "" if is_really_inside(root, path) else LINKED
