"""Which files of a folder are tables of its images, told by their names."""

import os
from collections.abc import Sequence
from pathlib import Path, PurePath

from train_pytorch_model.formats import listing
from train_pytorch_model.formats.automl_list import MLTABLE
from train_pytorch_model.formats.part_names import parts_of
from train_pytorch_model.formats.table_rows import JSON_SUFFIX, TABLE_SUFFIXES, TAGGED_SUFFIX

TABLES = ("metadata.jsonl", "metadata.csv", "labels.csv")  # looked for in a folder, in this order
NO_TABLES = frozenset(
    {"sample_submission", "samplesubmission", "submission", "split", "scores", "corrections"}
)
SPREADSHEETS = frozenset({".xlsx", ".xls", ".xlsm", ".ods", ".numbers"})


def is_table(path: PurePath) -> bool:
    """Return whether a file is called like a table."""
    suffix = listing.suffix_of(path.name)
    is_of_rows = suffix in TABLE_SUFFIXES or suffix == JSON_SUFFIX
    return is_of_rows or suffix == TAGGED_SUFFIX or path.name == MLTABLE


def is_usual(path: PurePath) -> bool:
    """Return whether a file is called as the table of a folder usually is."""
    return path.name.lower() in TABLES


def tables_in(folder: Path) -> list[Path]:
    """Return the tables in a folder, the usual names first, those of its parts left out."""
    tables = [path for path in _files_in(folder) if is_table(path) and path.name != MLTABLE]
    # Other programs leave JSON of all kinds beside images: it counts if the user names it.
    tables = [path for path in tables if listing.suffix_of(path.name) != TAGGED_SUFFIX]
    tables = [path for path in tables if path.stem.lower() not in NO_TABLES]
    of_parts = set(_part_tables(tables).values()) if len(tables) > 1 else set()
    order = {name: index for index, name in enumerate(TABLES)}
    return sorted(
        (path for path in tables if path not in of_parts),
        key=lambda path: (order.get(path.name.lower(), len(TABLES)), path.name),
    )


def part_tables_in(folder: Path) -> dict[str, Path]:
    """Return the tables that are called like a part, such as `train.csv`, by part."""
    return _part_tables([path for path in _files_in(folder) if is_table(path)])


def spreadsheets_in(folder: Path) -> list[str]:
    """Return the names of the spreadsheets in a folder, which cannot be read."""
    return [path.name for path in _files_in(folder) if listing.suffix_of(path.name) in SPREADSHEETS]


def _part_tables(tables: Sequence[Path]) -> dict[str, Path]:
    """Return the tables of parts; of two for one part, none."""
    part_of = parts_of([path.stem for path in tables])
    found: dict[str, list[Path]] = {}
    for path in tables:
        if path.stem in part_of:
            found.setdefault(part_of[path.stem], []).append(path)
    return {part: paths[0] for part, paths in found.items() if len(paths) == 1}


def _files_in(folder: Path) -> list[Path]:
    """Return the visible files in a folder, by name; none if it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not listing.is_hidden(name)]
