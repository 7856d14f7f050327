"""What `fit` has understood of a folder: its categories, and the images of each part."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.datasets.one_folder import Parts
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.listing import comparable

MAX_ROWS = 16  # categories that are all shown …
SHOWN = 6  # … and of more, the largest and the smallest
MAX_NAME = 36  # characters of a category, so that a row fits into 80


def describe_parts(parts: Parts) -> Iterator[str]:
    """Yield the lines of the table, which fit into 80 characters."""
    by_part = [_counts_by_name(images) for images in parts.by_name().values()]
    categories = list(dict.fromkeys(chain(*by_part)))
    names = [_shown(name) for name in categories]
    counts = np.asarray([[count.get(name, 0) for count in by_part] for name in categories])
    source = parts.training.origin or "the names of the folders"
    yield f"Categories from {source}:"
    order = np.argsort(-counts.sum(axis=1), kind="stable")
    rows = np.arange(len(names)) if len(names) <= MAX_ROWS else order
    width = max([len(names[row]) for row in rows.tolist()])
    yield _row("", tuple(parts.by_name()), width)
    if len(rows) <= MAX_ROWS:
        yield from _rows(rows, names, counts, width)
        return
    yield from _rows(rows[:SHOWN], names, counts, width)
    between = counts[rows[SHOWN:-SHOWN]].sum(axis=1)
    number = counted(len(between), "category", "categories")
    yield f"  … {number} of {between.min():,} to {between.max():,} images …"
    yield from _rows(rows[-SHOWN:], names, counts, width)


def _counts_by_name(images: ImageDirectory) -> dict[str, int]:
    counts = images.class_counts().tolist()
    return dict(zip(map(comparable, images.categories), counts, strict=True))


def _rows(rows: np.ndarray, names: Sequence[str], counts: np.ndarray, width: int) -> Iterator[str]:
    for row in rows.tolist():
        yield _row(names[row], [f"{count:,}" for count in counts[row].tolist()], width)


def _row(name: str, cells: Sequence[str], width: int) -> str:
    training, validation, test = cells
    return f"  {name:{width}}  {training:>9}  {validation:>10}  {test:>9}"


def _shown(name: str) -> str:
    """Return the name of a category in one line of bounded length."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= MAX_NAME else f"{text[: MAX_NAME - 1]}…"
