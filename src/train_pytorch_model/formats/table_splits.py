"""The user's own parts, as a column of a table tells them.

split, subset, …     train / Training, val / valid / dev, test / holdout
is_valid, is_test    1 / 0, True / False, yes / no
fold                 numbers, if the user names the column: the last is the test
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train_pytorch_model.config.wording import assignment, parameter
from train_pytorch_model.formats.part_names import PARTS, TEST, TRAINING, VALIDATION, parts_of
from train_pytorch_model.formats.reading import MalformedFileError

NO_PART = -1
# Names of columns in lower case, in the order in which they are looked for.
CERTAIN_COLUMNS = ("split", "data_split", "dataset_split", "train_test_split", "train_val_test")
POSSIBLE_COLUMNS = ("subset", "partition", "set", "usage", "phase", "part", "fold", "kfold")
# A column of yes and no → the part of the rows that say yes.
YES_NO_COLUMNS = {
    "is_train": TRAINING,
    "is_training": TRAINING,
    "is_training_image": TRAINING,
    "is_valid": VALIDATION,
    "is_val": VALIDATION,
    "is_validation": VALIDATION,
    "is_test": TEST,
    "is_holdout": TEST,
}
YES = frozenset({"1", "1.0", "true", "t", "yes", "y"})
NO = frozenset({"0", "0.0", "false", "f", "no", "n"})
MAX_VALUES = 100  # different ones in a column of parts
SHOWN = 5

Columns = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Split:
    """The part of each row."""

    columns: tuple[str, ...]
    parts: np.ndarray  # (rows,), int8: an index into `PARTS`, or `NO_PART`


def find_split(table: str, columns: Columns, named: str) -> tuple[Split | None, list[str]]:
    """Return the parts that a table tells, if it does, and notes on columns that may mean others.

    `named` is the column that the user has named. Raises `MalformedFileError`.
    """
    if named:
        return _read_named(table, named, columns[named]), []
    by_name = {comparable(column): column for column in columns}
    notes: list[str] = []
    for name in (*CERTAIN_COLUMNS, *POSSIBLE_COLUMNS):
        if name not in by_name:
            continue
        column = by_name[name]
        part_of, other = _understand(columns[column])
        if part_of and not other:
            return Split((column,), _apply(part_of, columns[column])), notes
        notes += _about_other_values(table, column, other, bool(part_of), name in CERTAIN_COLUMNS)
    yes_no = {by_name[name]: part for name, part in YES_NO_COLUMNS.items() if name in by_name}
    return _read_yes_no(columns, yes_no), notes


def _read_named(table: str, column: str, cells: Sequence[Any]) -> Split | None:
    """Return the parts by a column that the user has named. Raises `MalformedFileError`."""
    part_of, other = _understand(cells)
    if other and not part_of:
        name = comparable(column)
        if _says_yes_or_no(other):
            return _read_yes_no({column: cells}, {column: YES_NO_COLUMNS.get(name, TEST)})
        part_of = _folds(other)
        other = [] if part_of else other
    if other or not part_of:
        raise _not_understood(table, column, other)
    return Split((column,), _apply(part_of, cells))


def _about_other_values(
    table: str, column: str, other: Sequence[str], is_split: bool, is_certain: bool
) -> list[str]:
    """Return what to say about a column that is not taken. Raises `MalformedFileError`."""
    if _are_numbers(other) and not is_split:
        return [
            f"The column {column!r} of {table} is not taken for a split into parts."
            f" {assignment('split_column', column)} makes its highest number the test, and the one"
            " below it the validation."
        ]
    if other and (is_split or is_certain):
        raise _not_understood(table, column, other)
    return []


def _not_understood(table: str, column: str, other: Sequence[str]) -> MalformedFileError:
    shown = ", ".join(map(repr, other[:SHOWN])) if other else "nothing"
    more = f" and {len(other) - SHOWN} more" if len(other) > SHOWN else ""
    return MalformedFileError(
        f"the column {column!r} of {table} should say which part an image is for: train, validation"
        f" or test; it also holds {shown}{more}. Correct them, name another column with"
        f" {parameter('split_column')}, or rename this one if it means something else."
    )


def _understand(cells: Sequence[Any]) -> tuple[dict[str, str], list[str]]:
    """Return the part of each value that stands for one, and the other values but empty ones."""
    values = sorted(set(map(_text, set(cells))) - {""})
    if len(values) > MAX_VALUES:
        return {}, values
    part_of = parts_of(values)
    return part_of, [value for value in values if value not in part_of]


def _folds(values: Sequence[str]) -> dict[str, str]:
    """Return the parts of numbered folds: the highest is the test, the one below validation."""
    if not _are_numbers(values) or len(values) < 2:
        return {}
    *others, last = sorted(values, key=float)
    part_of = {**dict.fromkeys(others, TRAINING), last: TEST}
    if len(others) > 1:
        part_of[others[-1]] = VALIDATION
    return part_of


def _are_numbers(values: Sequence[str]) -> bool:
    numbers = [value.removesuffix(".0").isdecimal() for value in values]
    return bool(numbers) and all(numbers) and len(numbers) <= MAX_VALUES


def _says_yes_or_no(values: Sequence[str]) -> bool:
    return bool(values) and {value.lower() for value in values} <= YES | NO


def _read_yes_no(columns: Columns, yes_no: Mapping[str, str]) -> Split | None:
    """Return the parts of columns that say yes or no: the last of `PARTS` for which one says yes.

    What no column says yes to is for training, or for the test if one says what is for training.
    """
    told = {}
    for column, part in yes_no.items():
        _, values = _understand(columns[column])
        if _says_yes_or_no(values):
            told[column] = part
    if not told:
        return None
    rest = TEST if TRAINING in told.values() else TRAINING
    parts = np.full(len(columns[next(iter(told))]), NO_PART, dtype=np.int8)
    for column, part in told.items():
        cells = columns[column]
        yes = {_text(cell): part for cell in set(cells) if _text(cell).lower() in YES}
        parts = np.maximum(parts, _apply(yes, cells))
    parts[parts == NO_PART] = PARTS.index(rest)
    return Split(tuple(told), parts)


def _apply(part_of: Mapping[str, str], cells: Sequence[Any]) -> np.ndarray:
    index_of = dict.fromkeys(set(cells), NO_PART)
    for cell in index_of:
        part = part_of.get(_text(cell))
        if part:
            index_of[cell] = PARTS.index(part)
    return np.fromiter(map(index_of.__getitem__, cells), np.int8, len(cells))


def comparable(column: str) -> str:
    """Return the name of a column as names are compared: in lower case, with underscores."""
    return column.strip().lower().replace(" ", "_").replace("-", "_")


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()
