"""The rows of a list that gives images their categories, whatever its format."""

from dataclasses import dataclass, field

import numpy as np

from train_pytorch_model.formats.listing import (
    UNLABELLED,
    Listing,
    PackedNames,
    check_category_names,
    natural_order,
)
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.words.errors import bulleted

MAX_LABEL_BYTES = 255  # a category may also be the name of a folder
REPEATED = "duplicate rows"


class RowError(Exception):
    """A row cannot be used; the text is the reason, without a final period."""


@dataclass
class LabelledRows:
    """Collects the usable rows of a list, and the problems of the others."""

    source: str
    """The name of the list."""
    labels: dict[str, str | None] = field(default_factory=dict)
    """File name relative to the images' folder → category."""
    problems: list[str] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    """As in `Listing`."""

    def add(self, name: str, label: str | None) -> None:
        """Add an image. Raises `RowError` if an earlier row gives it another category."""
        if name in self.labels:
            if self.labels[name] != label:
                raise RowError(
                    f"image {name!r} has label {self.labels[name]!r} in another row and {label!r} here"
                )
            self.ignored[REPEATED] = self.ignored.get(REPEATED, 0) + 1
        self.labels[name] = label

    def listing(self) -> Listing:
        """Return the images, by category and name. Raises `MalformedFileError` with all problems."""
        labels, problems = self.labels, self.problems
        unlabelled = [name for name, label in labels.items() if label is None]
        if 0 < len(unlabelled) < len(labels):
            problems = problems + [f"image {name!r} has no label, but others do." for name in unlabelled]
        if problems:
            raise MalformedFileError(
                f"{len(problems)} rows of {self.source} cannot be used:{bulleted(problems)}\n"
            )
        categories = sorted({label for label in labels.values() if label is not None}, key=natural_order)
        check_category_names(categories)
        index_of: dict[str | None, int] = {name: index for index, name in enumerate(categories)}
        class_of = {name: index_of.get(label, UNLABELLED) for name, label in labels.items()}
        names = sorted(labels, key=lambda name: (class_of[name], natural_order(name)))
        return Listing(
            file_names=PackedNames.pack(names),
            class_indices=np.asarray([class_of[name] for name in names], dtype=np.int32),
            categories=tuple(categories),
            columns=("id", "category") if categories else ("id",),
            ignored=self.ignored,
        )


def checked_label(label: object) -> str | None:
    """Return a row's category as text; None if it has none. Raises `RowError`."""
    if isinstance(label, list):
        raise RowError(
            "its label is a list: multi-label data and boxes are not supported. One string is expected"
        )
    if isinstance(label, int) and not isinstance(label, bool):
        label = str(label)
    if label is not None and not isinstance(label, str):
        raise RowError(f"its label is {label!r}; a string is expected")
    if label is not None and not 0 < len(label.encode()) <= MAX_LABEL_BYTES:
        raise RowError(f"its label has {len(label.encode())} bytes; 1 to {MAX_LABEL_BYTES} are expected")
    return label
