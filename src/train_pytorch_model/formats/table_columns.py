"""Which columns of a table have the names of the images, and their categories.

A column that the user names counts. Else a column is recognized by its name and by its values; of
two that may both be meant, none is guessed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.config.wording import assignment, parameter
from train_pytorch_model.formats import listing
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.table_rows import JSON_SUFFIX, SeveralValues, Table
from train_pytorch_model.formats.table_splits import Split, comparable, find_split

# Names of columns in lower case, in the order in which they are looked for.
FILE_COLUMNS = (
    "file_name", "filename", "file", "image", "image_name", "image_path", "image_file", "image_id",
    "image_url", "filepath", "file_path", "path", "img", "img_name", "img_path", "images", "photo",
    "picture", "id", "name",
)  # fmt: skip
LABEL_COLUMNS = (
    "label", "category", "class", "class_name", "label_name", "labels", "target",
    "species", "breed", "diagnosis", "y", "dx", "class_label", "category_name", "kind",
)  # fmt: skip
LIST_COLUMNS = frozenset({"labels", "tags", "categories", "classes"})
"""Names of columns of which a cell may have several categories; all but the first are looked for
only if no other name is found."""
SEPARATORS = ";|,"  # of the categories in a cell, the first that any cell has
NUM_SAMPLES = 100  # rows that are tried as names of images
SHOWN = 8
MARKS = frozenset({"0", "1", "0.0", "1.0"})  # of a table with a column per category
YES = frozenset({"1", "1.0"})


@dataclass(frozen=True)
class ChosenColumns:
    """The columns that are read."""

    file: str
    labels: tuple[str, ...]
    """The column of categories, or one column per category, of which each row marks one by 1."""
    split: Split | None
    unused: tuple[str, ...]
    notes: tuple[str, ...]
    separator: str = ""
    """What separates the categories in a cell; empty if a cell has one."""


class UnclearLabelError(MalformedFileError):
    """Columns of a table may all have the categories, or none has them by its name."""


def choose_file_column(
    table: Table, options: TableOptions, finds: Sequence[Callable[[str], bool]]
) -> tuple[str, int]:
    """Return the column of file names, and how many of `NUM_SAMPLES` rows name an image.

    That is by the first of `finds` by which any row does. Raises `MalformedFileError`.
    """
    rows = listing.evenly_spaced(len(table), NUM_SAMPLES).tolist()

    if options.file_column:
        named = _named(table, options.file_column)
        return named, max(_hits(table, named, rows, find) for find in finds)
    usual = _usual(table, FILE_COLUMNS)
    others = [column for column in table.columns if column not in usual]
    for find in finds:
        hits = {column: _hits(table, column, rows, find) for column in [*usual, *others]}
        best = max(hits, key=hits.__getitem__)  # of several, the first
        if hits[best]:
            return best, hits[best]
    if usual:
        return usual[0], 0
    if len(table.columns) == 2:
        return next(iter(table.columns)), 0
    raise MalformedFileError(
        f"no column of {table.name} names images that are here: it has"
        f" {_quoted(list(table.columns))}. Name the column with {parameter('file_column')}."
    )


def _hits(table: Table, column: str, rows: Sequence[int], find: Callable[[str], bool]) -> int:
    """Return how many of the rows name an image in a column."""
    cells = table.columns[column]
    return sum(find(str(cells[row])) for row in rows if cells[row] is not None)


def choose_columns(
    table: Table, file_column: str, options: TableOptions, folders: Sequence[str]
) -> ChosenColumns:
    """Return the columns that are read; `folders` would be the categories without a table.

    Raises `MalformedFileError`, `UnclearLabelError`.
    """
    split_name = _named(table, options.split_column) if options.split_column else ""
    split, notes = find_split(table.name, table.columns, split_name)
    taken = {file_column, *(split.columns if split else ())}
    free = [column for column in table.columns if column not in taken and column]
    if options.label_column:
        labels: Sequence[str] = [_named(table, options.label_column)]
    else:
        labels, about_labels = _choose_or_note(table, free, folders)
        notes += about_labels
    unused = tuple(column for column in free if column not in labels)
    separator = ""
    notes = [*notes, *_notes_on_unmarked(table, labels)]
    if len(labels) == 1:
        separator = _separator_of(table, labels[0])
        notes = [*notes, *_notes_on_separators(table, labels[0])]
    return ChosenColumns(file_column, tuple(labels), split, unused, tuple(notes), separator)


def _separator_of(table: Table, column: str) -> str:
    """Return what separates the categories in the cells of a column; empty if nothing does."""
    if comparable(column) not in LIST_COLUMNS:
        return ""
    cells = {cell for cell in set(table.columns[column]) if _is_text(cell)}
    return next((mark for mark in SEPARATORS if any(mark in cell for cell in cells)), "")


def _notes_on_separators(table: Table, column: str) -> list[str]:
    """Return a note if the cells of a column for one category look like lists."""
    if comparable(column) in LIST_COLUMNS:
        return []
    cells = {cell for cell in set(table.columns[column]) if _is_text(cell)}
    for mark in SEPARATORS:
        lists = sorted(
            cell for cell in cells if mark in cell and _parts_are_cells(cell, mark, cells)
        )
        if lists:
            return [
                f"cells of the column {column!r} of {table.name}, such as {lists[0]!r}, look like"
                " lists, and are taken for categories of their own. If images have several"
                f" categories, {_how_to_list(table)}."
            ]
    return []


def _how_to_list(table: Table) -> str:
    """Return what makes cells lists."""
    if table.name.casefold().endswith(JSON_SUFFIX):
        return 'write them as lists, such as ["cat", "dog"]'
    return "call the column 'labels'"


def _notes_on_unmarked(table: Table, columns: Sequence[str]) -> list[str]:
    """Return a note if columns of 0 and 1 mark no row: nothing can be learned of them."""
    if len(columns) < 2:
        return []
    unmarked = [
        column for column in columns if not any(str(cell) in YES for cell in table.columns[column])
    ]
    if not unmarked:
        return []
    return [f"columns of {table.name} without any 1 are no categories: {_quoted(unmarked)}."]


def _parts_are_cells(cell: str, mark: str, cells: Collection[str]) -> bool:
    """Return whether a cell looks like a list: by its mark, or because others have its parts."""
    parts = [part.strip() for part in cell.split(mark)]
    return mark != "," or any(part in cells for part in parts)


def _is_text(cell: object) -> TypeGuard[str]:
    return isinstance(cell, str) and not isinstance(cell, SeveralValues)


def _choose_or_note(
    table: Table, free: Sequence[str], folders: Sequence[str]
) -> tuple[Sequence[str], list[str]]:
    """Return the columns of categories; none, with a note, if folders are clearer than they are.

    Raises `UnclearLabelError`.
    """
    try:
        return _choose_labels(table, free, folders), []
    except UnclearLabelError:
        if not folders:
            raise
    note = (
        f"the categories are the names of the folders; {parameter('label_column')} names a column"
        f" of {table.name} instead ({_quoted(free)})."
    )
    return (), [note]


def _choose_labels(table: Table, free: Sequence[str], folders: Sequence[str]) -> Sequence[str]:
    """Return the column of categories, a column per category, or none.

    Raises `UnclearLabelError`.
    """
    candidates = _usual(table, LABEL_COLUMNS, free)
    candidates = candidates or _usual(table, sorted(LIST_COLUMNS), free)
    if not candidates:
        if len(free) <= 1 or _is_one_hot(table, free):
            return free
        raise UnclearLabelError(_unclear(table, free))
    for narrow in (_with_categories, _with_folders, _with_names):
        if len(candidates) > 1:
            candidates = narrow(table, candidates, folders) or candidates
    if len(candidates) > 1:
        raise UnclearLabelError(_unclear(table, candidates))
    return candidates


def _with_categories(table: Table, columns: Sequence[str], _: Sequence[str]) -> list[str]:
    """Return the columns that have several values, and not another one in each row."""
    return [column for column in columns if 1 < _num_values(table, column) < len(table)]


def _with_folders(table: Table, columns: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the columns whose values are the names of the folders."""
    names = set(map(listing.comparable, folders))
    return [
        column
        for column in columns
        if {listing.comparable(str(cell)) for cell in set(table.columns[column])} == names
    ]


def _with_names(table: Table, columns: Sequence[str], _: Sequence[str]) -> list[str]:
    """Return one of columns that tell the same, as numbers and as names; none if they do not."""
    first = table.columns[columns[0]]
    for column in columns[1:]:
        other = table.columns[column]
        if len(set(zip(first, other, strict=True))) != len(set(first)) or len(set(first)) != len(
            set(other)
        ):
            return []
    named = [column for column in columns if not _has_numbers(table, column)]
    return [*named, *columns][:1]


def _has_numbers(table: Table, column: str) -> bool:
    return all(str(cell).isdecimal() for cell in set(table.columns[column]) - {None})


def _is_one_hot(table: Table, columns: Sequence[str]) -> bool:
    """Return whether these columns mark categories by 0 and 1."""
    return all({str(cell) for cell in set(table.columns[column])} <= MARKS for column in columns)


def labels_of(table: Table, columns: ChosenColumns) -> Sequence[Any]:
    """Return the category of each row, or None; tuples of them if any row may have several."""
    if not columns.labels:
        return [None] * len(table)
    if len(columns.labels) > 1:
        return _marked(table, columns.labels)
    cells = table.columns[columns.labels[0]]
    if columns.separator:
        return [_split(cell, columns.separator) for cell in cells]
    return cells


def _marked(table: Table, columns: Sequence[str]) -> Sequence[Any]:
    """Return the columns that mark each row: one or none, or tuples if any row has several."""
    marked: list[tuple[str, ...]] = [()] * len(table)
    for column in columns:
        for row, cell in enumerate(table.columns[column]):
            if str(cell) in YES:
                marked[row] += (column,)
    if any(len(names) > 1 for names in marked):
        return marked
    return [names[0] if names else None for names in marked]


def _split(cell: Any, separator: str) -> Any:
    """Return the categories in a cell."""
    if not _is_text(cell):
        return () if cell is None else cell
    return tuple(part.strip() for part in cell.split(separator) if part.strip())


def _unclear(table: Table, columns: Sequence[str]) -> str:
    """Return the message that names the columns that may be meant."""
    ordered = sorted(columns, key=lambda column: _num_values(table, column))
    some = [column for column in ordered if 1 < _num_values(table, column) < len(table)]
    example = assignment("label_column", (some or ordered)[0])
    counts = ", ".join(
        f"{column!r} ({_num_values(table, column):,} different values)"
        for column in columns[:SHOWN]
    )
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return (
        f"it is not clear which column of {table.name} has the categories: {counts}{more}. Name it"
        f" with {parameter('label_column')}, such as {example}."
    )


def _num_values(table: Table, column: str) -> int:
    return len(set(table.columns[column]))


def _usual(table: Table, names: Sequence[str], among: Sequence[str] | None = None) -> list[str]:
    """Return the columns with these names, in the order of the names."""
    columns = list(table.columns) if among is None else among
    by_name: Mapping[str, str] = {comparable(column): column for column in reversed(columns)}
    return [by_name[name] for name in names if name in by_name]


def _named(table: Table, name: str) -> str:
    """Return the column that the user has named. Raises `MalformedFileError`."""
    by_name = {comparable(column): column for column in reversed(table.columns)}
    for wanted in (name, by_name.get(comparable(name), "")):
        if wanted in table.columns:
            return wanted
    raise MalformedFileError(
        f"{table.name} has no column {name!r}; it has {_quoted(list(table.columns))}."
    )


def _quoted(columns: Sequence[str]) -> str:
    more = f" and {len(columns) - SHOWN} more" if len(columns) > SHOWN else ""
    return ", ".join(map(repr, columns[:SHOWN])) + more
