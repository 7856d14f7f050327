"""The table of a fitted model's images: which of them were for training, validation and test.

split.csv       file_name,category,part
                daisy/1.jpg,daisy,training
"""

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.one_folder import Parts
from train_pytorch_model.formats.writing import write_csv

SPLIT = "split.csv"
COLUMNS = ("file_name", "category", "part")
MAX_BYTES = 1 << 30  # of a table that is read


@dataclass(frozen=True)
class Row:
    """An image: the name of its file in the folder, its category and its part."""

    file_name: str
    category: str
    part: str


def write_split(path: Path, parts: Parts) -> None:
    """Write a CSV file with a row per image. Raises `OSError`."""

    def rows() -> Iterator[tuple[str, str, str]]:  # one at a time: there may be millions
        yield COLUMNS
        for row in rows_of(parts):
            yield row.file_name, row.category, row.part

    write_csv(path, rows())


def rows_of(parts: Parts) -> Iterator[Row]:
    """Yield the images of all parts."""
    folder = Path(os.path.commonpath([images.root for images in parts.by_name().values()]))
    for part, images in parts.by_name().items():
        is_inside = images.root != folder
        prefix = f"{images.root.relative_to(folder).as_posix()}/" if is_inside else ""
        for index, name in enumerate(images.file_names):
            yield Row(prefix + name, images.category_of(index), part)


def read_split(path: Path) -> list[Row]:
    """Return the rows of such a file; none if it cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return []
        with path.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
            header, *rows = csv.reader(file, strict=True)
        return [Row(*row) for row in rows] if tuple(header) == COLUMNS else []
    except (OSError, ValueError, TypeError, csv.Error):
        return []


def describe_changes(earlier: list[Row], parts: Parts) -> str:
    """Return how many images were added, removed or have another category since then."""
    before = {row.file_name: row.category for row in earlier}
    after = {row.file_name: row.category for row in rows_of(parts)}
    if not before:
        return ""
    common = before.keys() & after.keys()
    counts = {
        "added": len(after) - len(common),
        "removed": len(before) - len(common),
        "of another category": sum(before[name] != after[name] for name in common),
    }
    return ", ".join(
        f"{counted(count, 'image', 'images')} {what}" for what, count in counts.items() if count
    )
