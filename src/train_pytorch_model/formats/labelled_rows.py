"""The images that the rows of a list or a table name, with their categories."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.formats import listing
from train_pytorch_model.formats.label_kinds import CATEGORIES_COLUMN
from train_pytorch_model.formats.label_sets import LabelSets
from train_pytorch_model.formats.listing import UNLABELLED, Listing
from train_pytorch_model.formats.listing import natural_order as natural
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.table_rows import SeveralValues
from train_pytorch_model.formats.table_splits import NO_PART

MAX_LABEL_BYTES = 255  # a category may also be the name of a folder
SHOWN = 3
MAX_SHOWN = 60  # characters of several categories


Label = str | tuple[str, ...] | None
"""A category, a list of any number of them, or nothing."""
SEVERAL_HINT = (
    " If an image may have several categories, give them in one row, such as 'cat;dog' in a column"
    " called 'labels'."
)


class RowError(Exception):
    """A row cannot be used; the text is the reason, without a final period."""


class LabelledRows:
    """Collects the usable rows of a list, and the problems of the others."""

    def __init__(self, source: str) -> None:
        self.source = source
        # By the name of the file, relative to the folder of the images.
        self.labels: dict[str, Label] = {}
        self.parts: dict[str, int] = {}
        self.problems: list[str] = []
        self.ignored: Counter[str] = Counter()
        self._contradicts = False

    def add(self, name: str, label: object, part: int = NO_PART) -> None:
        """Add an image. Raises `RowError`, also if an earlier row gives it another category."""
        checked = _label_of(label)
        if name in self.labels:
            self._check_repeated(name, checked, part)
            self.ignored["duplicate rows"] += 1
        self.labels[name] = checked
        if part != NO_PART:
            self.parts[name] = part

    def _check_repeated(self, name: str, label: Label, part: int) -> None:
        other = self.labels[name]
        if other != label:
            self._contradicts = True
            raise RowError(
                f"image {name!r} has label {_shown(other)} in another row and {_shown(label)} here"
            )
        if self.parts.get(name, NO_PART) != part:
            raise RowError(f"image {name!r} is in another part in another row")

    def ignore(self, what: str, names: Sequence[str]) -> None:
        """Count images or rows that are not used, and name the first."""
        if names:
            self.ignored[f"{what} ({some(names)})"] = len(names)

    def _leave_out_unlabelled(self) -> None:
        """Leave out the images without a category, if others have one."""
        unlabelled = [name for name, label in self.labels.items() if label is None]
        if unlabelled and len(unlabelled) < len(self.labels):
            self.ignore("images without a category in their row", unlabelled)
            for name in unlabelled:
                del self.labels[name]

    def listing(self) -> Listing:
        """Return the images, by category and name.

        Raises `MalformedFileError` with all problems.
        """
        if self.problems:
            problems = bulleted(self.problems)
            rows = counted(len(self.problems), "row", "rows")
            hint = SEVERAL_HINT if self._contradicts else ""
            raise MalformedFileError(
                f"{rows} of {self.source} cannot be used:{problems}\nCorrect them, or remove them."
                f"{hint}"
            )
        if any(isinstance(label, tuple) for label in self.labels.values()):
            return self._listing_of_sets()
        self._leave_out_unlabelled()
        used = {label for label in self.labels.values() if isinstance(label, str)}
        categories = sorted(used, key=listing.natural_order)
        listing.check_category_names(categories)
        index_of = {name: index for index, name in enumerate(categories)}
        class_of = {
            name: index_of.get(label, UNLABELLED) if isinstance(label, str) else UNLABELLED
            for name, label in self.labels.items()
        }
        names = sorted(self.labels, key=lambda name: (class_of[name], listing.natural_order(name)))
        return Listing(
            file_names=listing.Packer(names).finish(),
            class_indices=np.asarray([class_of[name] for name in names], dtype=np.int32),
            categories=tuple(categories),
            columns=("id", "category") if categories else ("id",),
            ignored=dict(self.ignored),
        )

    def _listing_of_sets(self) -> Listing:
        """Return the images by name, each with any number of categories.

        Raises `MalformedFileError`.
        """
        lists = {name: _as_list(label) for name, label in self.labels.items()}
        categories = sorted({label for labels in lists.values() for label in labels}, key=natural)
        if not categories:
            return listing.list_unlabelled(lists, self.ignored)
        listing.check_category_names(categories)
        index_of = {name: index for index, name in enumerate(categories)}
        sets = LabelSets()
        names = sorted(lists, key=natural)
        numbers = [sets.number_of(index_of[label] for label in lists[name]) for name in names]
        num_none = sum(not labels for labels in lists.values())
        notes = []
        if num_none:
            images = counted(num_none, "image has", "images have")
            notes.append(f"{images} no category in {self.source}: none of them applies.")
        return Listing(
            file_names=listing.Packer(names).finish(),
            class_indices=np.asarray(numbers, dtype=np.int32),
            categories=tuple(categories),
            columns=("id", CATEGORIES_COLUMN),
            ignored=dict(self.ignored),
            notes=tuple(notes),
            labels=sets.kind(len(categories)),
        )


def _shown(label: Label) -> str:
    return repr("; ".join(label)) if isinstance(label, tuple) else repr(label)


def _as_list(label: Label) -> tuple[str, ...]:
    """Return a label as a list of categories."""
    if label is None:
        return ()
    return label if isinstance(label, tuple) else (label,)


def _label_of(label: object) -> Label:
    """Return the label of a row, checked: a category or a list of them. Raises `RowError`."""
    if isinstance(label, list | tuple):
        return tuple(dict.fromkeys(_category_of(item) for item in label))
    return None if label is None else _category_of(label)


def _category_of(label: object) -> str:
    """Return a category as text. Raises `RowError`."""
    if isinstance(label, list | dict | SeveralValues):
        raise RowError(
            f"its label is {str(label)[:MAX_SHOWN]}, and boxes and other objects are not supported."
            " A category or a list of categories is expected"
        )
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if not isinstance(label, str):
        raise RowError(f"its label is {label!r}; a string is expected")
    size = len(label.encode(errors="replace"))
    if not 0 < size <= MAX_LABEL_BYTES:
        raise RowError(f"its label has {size} bytes; 1 to {MAX_LABEL_BYTES} are expected")
    return label


def some(names: Sequence[str]) -> str:
    """Return the first names, quoted."""
    more = ["…"] if len(names) > SHOWN else []
    return ", ".join([*map(repr, names[:SHOWN]), *more])
