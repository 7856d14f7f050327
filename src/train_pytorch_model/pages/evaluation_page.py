"""Render an evaluation as an HTML page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.measures.evaluation import TOP_K, Confusion, Evaluation, accuracy_in_images
from train_pytorch_model.measures.evaluation_directory import (
    CategoryRow,
    Mistake,
    calibration_rows,
    category_rows,
    confused_rows,
)
from train_pytorch_model.pages.page import cut, png, render_page, thumbnail
from train_pytorch_model.words.wording import counted

MAX_MISTAKES = 24  # with their pictures, about 5 kB each
MAX_ROWS = 1000  # of the table of categories, with 8 elements each
MAX_PAIRS = 12
MAX_NAMED_ABSENT = 10
MAX_TABLE = 20  # categories; more are drawn as a heat map
MAX_UPRIGHT = 72  # characters across all column headings; beyond, the names are rotated
MAX_MAP_SIDE = 300  # px, as on a phone; with more categories, several share a pixel
MAX_MAP_CELLS = 50_000  # cells whose counts the page contains, about 12 bytes each
MIN_ALPHA = 0.35  # keeps a single mistake visible
# Both have a contrast of 3:1 with the light and the dark background.
HIT_COLOUR, MISTAKE_COLOUR = (47, 125, 225), (224, 86, 43)


@dataclass(frozen=True)
class Figure:
    """A headline metric."""

    name: str
    value: str
    explanation: str


@dataclass(frozen=True)
class Named:
    """A number of categories, and the names of the first few."""

    names: Sequence[str]
    count: int


@dataclass(frozen=True)
class ConfusionTable:
    """The confusion matrix as a table of counts, for few categories."""

    names: Sequence[str]
    support: Sequence[int]
    rows: Sequence[Sequence[int]]
    """Images by true category, then by predicted category."""
    is_upright: bool
    """Whether the names fit above the columns without being rotated."""


@dataclass(frozen=True)
class ConfusionMap:
    """The confusion matrix as a heat map, for many categories, with the counts to show on hover."""

    names: Sequence[str]
    support: Sequence[int]
    picture: str
    """A data URI."""
    per_pixel: int
    """Categories per row or column of pixels; a pixel of several cells shows their hits or their mistakes."""
    cells: Sequence[tuple[int, int, int]]
    """(true, predicted, images)."""
    rest: int
    """The largest count of a cell that is not in `cells`; 0 if all are."""


def render(
    evaluation: Evaluation,
    spec: ClassifierSpec,
    dataset_name: str,
    mistakes: Sequence[tuple[Mistake, str]],
    left_out: int,
) -> str:
    """Render the page; `mistakes` come with their thumbnails, and `left_out` images could not be read."""
    rows = worst_first(evaluation, spec.categories)
    return render_page(
        "evaluation.html",
        title=f"Evaluation report: {spec.architecture}",
        dataset_name=dataset_name,
        num_images=evaluation.images,
        num_categories=len(spec.categories),
        framing=spec.framing,
        version=__version__,
        figures=figures(evaluation),
        absent=without_images(evaluation.per_class.support, spec.categories),
        left_out=left_out,
        confusion=confusion_view(evaluation, spec.categories),
        pairs=confused_rows(evaluation, spec.categories, MAX_PAIRS),
        rows=rows[:MAX_ROWS],
        bins=calibration_rows(evaluation.calibration),
        calibration_error=evaluation.calibration.error,
        mistakes=mistakes,
        num_mistakes=len(evaluation.mistakes),
    )


def figures(evaluation: Evaluation) -> list[Figure]:
    """The headline metrics, formatted and explained."""
    count, present = len(evaluation.per_class.support), int(evaluation.per_class.has_recall.sum())
    in_top5 = "true category among the five most probable"
    return [
        Figure(
            "Accuracy",
            f"{evaluation.accuracy:.1%}",
            accuracy_in_images(evaluation),
        ),
        Figure(
            "Top 5 accuracy",
            f"{evaluation.top5:.1%}",
            in_top5 if count > TOP_K else f"always 100% with {count} categories",
        ),
        Figure(
            "Balanced accuracy",
            f"{evaluation.balanced_accuracy:.1%}",
            f"mean recall over {counted(present, 'category', 'categories')}",
        ),
        Figure("Macro F1", f"{evaluation.macro.f1:.3f}", f"weighted F1: {evaluation.weighted.f1:.3f}"),
        Figure("Loss", f"{evaluation.loss:.3f}", "mean cross-entropy, in nats"),
        Figure(
            "Calibration error",
            f"{evaluation.calibration.error:.1%}",
            f"ECE; mean confidence {evaluation.mean_confidence:.1%}",
        ),
    ]


def worst_first(evaluation: Evaluation, categories: Sequence[str]) -> list[CategoryRow]:
    """The categories by increasing F1, undefined F1 last; among equals, categories with images come first.

    A category without images that was predicted for some image has an F1 of 0.
    """
    rows = category_rows(evaluation.per_class, categories)
    return sorted(rows, key=lambda row: (math.inf if row.f1 is None else row.f1, row.support == 0))


def without_images(counts: np.ndarray, categories: Sequence[str]) -> Named:
    """The categories with a count of 0 in `counts`, (C,), int64; at most `MAX_NAMED_ABSENT` are named."""
    names = [name for name, count in zip(categories, counts, strict=True) if not count]
    return Named(names[:MAX_NAMED_ABSENT], len(names))


def with_pictures(mistakes: Sequence[Mistake], root: Path) -> list[tuple[Mistake, str]]:
    """Pair mistakes with thumbnails of their files below `root`."""
    return [(mistake, thumbnail(root / mistake.file_name)) for mistake in mistakes]


def confusion_view(evaluation: Evaluation, categories: Sequence[str]) -> ConfusionTable | ConfusionMap:
    """The confusion matrix as a table, or as a heat map if there are more than `MAX_TABLE` categories."""
    names, support = [cut(name) for name in categories], evaluation.per_class.support
    if len(names) > MAX_TABLE:
        return _confusion_map(evaluation.confusion, names, support)
    return ConfusionTable(
        names=names,
        support=support.tolist(),
        rows=[row.tolist() for row in evaluation.confusion.rows()],
        is_upright=len(names) * max(map(len, names)) <= MAX_UPRIGHT,
    )


def _confusion_map(confusion: Confusion, names: Sequence[str], support: np.ndarray) -> ConfusionMap:
    order = np.argsort(-confusion.images, kind="stable")
    known, rest = order[:MAX_MAP_CELLS], order[MAX_MAP_CELLS:]
    columns = (
        values[known].tolist() for values in (confusion.targets, confusion.predicted, confusion.images)
    )
    per_pixel = math.ceil(len(names) / MAX_MAP_SIDE)
    return ConfusionMap(
        names=names,
        support=support.tolist(),
        picture=_picture(confusion, support, per_pixel),
        per_pixel=per_pixel,
        cells=list(zip(*columns, strict=True)),
        rest=int(confusion.images[rest[0]]) if len(rest) else 0,
    )


def _picture(confusion: Confusion, support: np.ndarray, per_pixel: int) -> str:
    """Draw the matrix as a PNG data URI: hits and mistakes have their colours, empty cells are transparent.

    A pixel shows its hits or its mistakes, whichever are more, the more opaque the larger their share of the
    images in its rows. One mistake between neighbouring categories thus does not hide a hundred hits, and off
    the diagonal, where there are no hits, mistakes are visible.
    """
    side = math.ceil(confusion.num_classes / per_pixel)
    pixels = confusion.targets // per_pixel * side + confusion.predicted // per_pixel  # (K,)
    is_hit = confusion.targets == confusion.predicted
    hits, mistakes = (
        np.bincount(pixels[chosen], confusion.images[chosen], side**2).reshape(side, side)
        for chosen in (is_hit, ~is_hit)
    )
    of_rows = np.bincount(np.arange(confusion.num_classes) // per_pixel, support)  # (side,)
    shares = np.maximum(hits, mistakes) / np.maximum(of_rows, 1)[:, np.newaxis]
    alpha = np.where(shares > 0, np.maximum(np.sqrt(shares), MIN_ALPHA), 0)
    levels = np.rint(alpha * 127) + 128 * (mistakes > hits)  # up to 127: hits, from 129: mistakes
    image = Image.fromarray(levels.astype(np.uint8)).convert("P")
    image.putpalette([*HIT_COLOUR * 128, *MISTAKE_COLOUR * 128])
    return png(image, transparency=bytes(level % 128 * 255 // 127 for level in range(256)))
