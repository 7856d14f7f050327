"""Plain folders: which of them are categories, and the images in them.

photographs/cat/1.jpg             the folder is the category …
photographs/cat/garden/2.jpg      … also of the images in folders inside it, at any depth
photographs/notes/plan.txt        a folder without an image is no category
download/photographs/cat/1.jpg    a folder that holds one folder, and no image or table, is seen
                                  through, if that leads to two or more folders
photographs/1.jpg                 images without any folder of images have no category
"""

import os
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np

from train_pytorch_model.config.wording import bulleted
from train_pytorch_model.formats.listing import (
    LOOSE,
    SUFFIXES,
    Listing,
    Packer,
    check_category_names,
    comparable,
    is_hidden,
    list_folder,
    list_images,
    list_unlabelled,
    natural_order,
    suffix_of,
)
from train_pytorch_model.formats.part_names import parts_of
from train_pytorch_model.formats.reading import META, MalformedFileError

TABLES = frozenset({".csv", ".tsv", ".jsonl", ".xlsx", ".xls", ".ods", ".parquet", ".json"})
SHOWN = 3


class NestedDataSetError(MalformedFileError):
    """A folder that would be a category is a data set."""

    def __init__(self, name: str) -> None:
        super().__init__(f"its folder {name!r} is a data set of its own, not a category.")
        self.name = name


def read_plain_folders(root: Path, known: Collection[str] = ()) -> Listing:
    """List the images by category, or images without any, in natural order.

    A folder called like a `known` category is one, and is not seen through. Raises
    `MalformedFileError`.
    """
    ignored: Counter[str] = Counter()
    start = folder_of_categories(root, known)
    folders, loose = list_folder(root, start, ignored, refuses_links=True)
    packer = Packer()
    counts: dict[str, int] = {}
    inner: dict[str, Collection[str]] = {}
    for category in sorted(folders, key=natural_order):
        folder = f"{start}{category}/"
        names = sorted(list_images(root, folder, ignored), key=natural_order)
        counts[category] = len(names)
        inner[category] = _inner_folders(names)
        _check_category(root, folder, is_nested=bool(inner[category]))
        packer.extend(f"{folder}{name}" for name in names)
    categories = [category for category, count in counts.items() if count]
    if not categories:
        return list_unlabelled([f"{start}{name}" for name in loose], ignored)
    check_category_names(categories)
    if loose:
        ignored[LOOSE] = len(loose)
    sizes = [counts[category] for category in categories]
    notes = [
        _about_start(start),
        _about_empty([name for name, count in counts.items() if not count], known),
        "" if known else _about_inner(start, categories, [inner[name] for name in categories]),
    ]
    return Listing(
        file_names=packer.finish(),
        class_indices=np.repeat(np.arange(len(categories), dtype=np.int32), sizes),
        categories=tuple(categories),
        columns=("id", "category"),
        ignored=dict(ignored),
        notes=tuple(filter(None, notes)),
    )


def folder_of_categories(root: Path, known: Collection[str] = ()) -> str:
    """Return the folder in `root` that is meant, with a final slash; empty for the root itself.

    A folder called like a `known` category is one, and is not seen through.
    """
    names = set(map(comparable, known))
    inner = ""
    content = _Content(root)
    while len(content.folders) == 1 and not (content.has_images or content.has_table):
        name = content.folders[0]
        if comparable(name) in names:
            return ""
        inner += f"{name}/"
        content = _Content(root / inner)
    return inner if len(content.folders) > 1 and not content.has_images else ""


class _Content:
    """What is in a folder; the names of folders are not complete if it has images."""

    def __init__(self, folder: Path) -> None:
        self.folders: list[str] = []
        self.has_images = False
        self.has_table = os.path.exists(folder / META)
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    self._add(entry)
                    if self.has_images:
                        return
        except OSError:  # listing it says what is wrong
            self.has_images = True

    def _add(self, entry: "os.DirEntry[str]") -> None:
        suffix = suffix_of(entry.name)
        if is_hidden(entry.name):
            return
        if entry.is_dir(follow_symlinks=False):
            self.folders.append(entry.name)
        elif suffix in SUFFIXES or entry.is_symlink():
            self.has_images = True
        elif suffix in TABLES:
            self.has_table = True


def _inner_folders(names: Sequence[str]) -> Collection[str]:
    """Return the folders in a category that hold its images; none if some are in it directly."""
    if not all("/" in name for name in names):
        return ()
    return {name.partition("/")[0] for name in names}


def _check_category(root: Path, folder: str, is_nested: bool) -> None:
    """Raise `NestedDataSetError` for a folder that is a data set: an image directory, or a part."""
    path = root / folder
    is_part = is_nested and bool(parts_of([path.name]))
    if is_part or (path / META).exists():
        raise NestedDataSetError(folder.rstrip("/"))


def _about_start(start: str) -> str:
    """Return that a folder is seen through; empty if none is."""
    return f"the categories are the folders in {start.rstrip('/')!r}." if start else ""


def _about_empty(folders: Sequence[str], known: Collection[str]) -> str:
    """Return which folders are no categories; empty for none, or for known ones only."""
    names = set(map(comparable, known))
    unknown = [repr(name) for name in folders if comparable(name) not in names]
    return f"folders without an image are no categories:{bulleted(unknown)}" if unknown else ""


def _about_inner(start: str, categories: Sequence[str], inner: Sequence[Collection[str]]) -> str:
    """Return which of two levels of folders are the categories, if the `inner` ones may be meant.

    That is if all images are in them, and each category has them, or the only one has several.
    """
    shared = sorted(set(inner[0]).intersection(*inner))
    if len(categories) == 1 and len(shared) > 1:
        return (
            f"the folders in it may be meant, {_some(shared)}: then name the folder"
            f" {start + categories[0]!r} in it."
        )
    if len(categories) == 1 or not shared:
        return ""
    return (
        "all images are in folders inside folders. The outer ones are the categories:"
        f" {_some(categories)}. If the inner ones are meant, {_some(shared)}, put the images of"
        " each of these into one folder."
    )


def _some(names: Sequence[str]) -> str:
    """Return the first names, separated by commas."""
    more = ["…"] if len(names) > SHOWN else []
    return ", ".join([*map(repr, names[:SHOWN]), *more])
