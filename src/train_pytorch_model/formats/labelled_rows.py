"""The images that the rows of a list or a table name, with their categories."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from train_pytorch_model.config.wording import bulleted, counted
from train_pytorch_model.formats import listing
from train_pytorch_model.formats.listing import UNLABELLED, Listing
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.table_rows import SeveralValues
from train_pytorch_model.formats.table_splits import NO_PART

MAX_LABEL_BYTES = 255  # a category may also be the name of a folder
SHOWN = 3
MAX_SHOWN = 60  # characters of several categories


class RowError(Exception):
    """A row cannot be used; the text is the reason, without a final period."""


class LabelledRows:
    """Collects the usable rows of a list, and the problems of the others."""

    def __init__(self, source: str) -> None:
        self.source = source
        # By the name of the file, relative to the folder of the images.
        self.labels: dict[str, str | None] = {}
        self.parts: dict[str, int] = {}
        self.problems: list[str] = []
        self.ignored: Counter[str] = Counter()

    def add(self, name: str, label: object, part: int = NO_PART) -> None:
        """Add an image. Raises `RowError`, also if an earlier row gives it another category."""
        text = _text_of(label)
        if name in self.labels:
            self._check_repeated(name, text, part)
            self.ignored["duplicate rows"] += 1
        self.labels[name] = text
        if part != NO_PART:
            self.parts[name] = part

    def _check_repeated(self, name: str, text: str | None, part: int) -> None:
        other = self.labels[name]
        if other != text:
            raise RowError(f"image {name!r} has label {other!r} in another row and {text!r} here")
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
            raise MalformedFileError(
                f"{rows} of {self.source} cannot be used:{problems}\nCorrect them, or remove them."
            )
        self._leave_out_unlabelled()
        used = {label for label in self.labels.values() if label is not None}
        categories = sorted(used, key=listing.natural_order)
        listing.check_category_names(categories)
        index_of: dict[str | None, int] = {name: index for index, name in enumerate(categories)}
        class_of = {name: index_of.get(label, UNLABELLED) for name, label in self.labels.items()}
        names = sorted(self.labels, key=lambda name: (class_of[name], listing.natural_order(name)))
        return Listing(
            file_names=listing.Packer(names).finish(),
            class_indices=np.asarray([class_of[name] for name in names], dtype=np.int32),
            categories=tuple(categories),
            columns=("id", "category") if categories else ("id",),
            ignored=dict(self.ignored),
        )


def _text_of(label: object) -> str | None:
    """Return the label of a row as text, if it has one. Raises `RowError`."""
    if label is None:
        return None
    if isinstance(label, list):
        raise RowError(
            "its label is a list: multi-label data and boxes are not supported. One string is"
            " expected"
        )
    if isinstance(label, SeveralValues):
        raise RowError(
            f"it has several categories ({label[:MAX_SHOWN]}), and multi-label data and boxes are"
            " not supported. One category is expected"
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
