"""An evaluation as a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from train_pytorch_model import __version__
from train_pytorch_model.evaluation import TOP_K, Confusion, Evaluation, accuracy_in_images
from train_pytorch_model.formats.evaluation_directory import (
    CategoryRow,
    Mistake,
    calibration_rows,
    category_rows,
    confused_rows,
)
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.pages.page import cut, png, render_page, thumbnail
from train_pytorch_model.wording import counted

MAX_MISTAKES = 24  # with their pictures, about 5 kB each
MAX_ROWS = 1000  # of categories; the table is 8 elements a row
MAX_PAIRS = 12
MAX_NAMED_ABSENT = 10
MAX_TABLE = 20  # categories; more make a heat map
MAX_UPRIGHT = 72  # characters side by side above the columns; more, and the names are turned
MAX_MAP_SIDE = 300  # px, as on a phone; beyond, several categories share one
MAX_MAP_CELLS = 50_000  # whose numbers the page knows, about 12 bytes each
MIN_ALPHA = 0.35  # a single mistake is still seen
# Both stand out by 3:1 from the light and the dark background.
HIT_COLOUR, MISTAKE_COLOUR = (47, 125, 225), (224, 86, 43)


@dataclass(frozen=True)
class Figure:
    """A main number."""

    name: str
    value: str
    explanation: str


@dataclass(frozen=True)
class Named:
    """Categories, of which the first are named."""

    names: Sequence[str]
    count: int


@dataclass(frozen=True)
class ConfusionTable:
    """The matrix with a number in each cell, for few categories."""

    names: Sequence[str]
    support: Sequence[int]
    rows: Sequence[Sequence[int]]
    """Images by true and predicted category."""
    is_upright: bool
    """Whether there is room for the names above the columns without turning them."""


@dataclass(frozen=True)
class ConfusionMap:
    """The matrix as a picture, for many categories, and its cells for whoever points at one."""

    names: Sequence[str]
    support: Sequence[int]
    picture: str
    """A data URI."""
    per_pixel: int
    """Categories in a row or a column of pixels; a pixel is a cell, or of several the hits or mistakes."""
    cells: Sequence[tuple[int, int, int]]
    """(true, predicted, images)."""
    rest: int
    """No cell that is not in `cells` has more images than this."""


def render(
    evaluation: Evaluation,
    spec: ClassifierSpec,
    dataset_name: str,
    mistakes: Sequence[tuple[Mistake, str]],
    left_out: int,
) -> str:
    """The page; `mistakes` come with their thumbnails, `left_out` images could not be read."""
    rows = worst_first(evaluation, spec.categories)
    return render_page(
        "evaluation.html",
        title=f"Evaluation of a {spec.architecture}",
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
    """The main numbers, in words."""
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
            in_top5 if count > TOP_K else f"always so with {count} categories",
        ),
        Figure(
            "Balanced accuracy",
            f"{evaluation.balanced_accuracy:.1%}",
            f"mean recall of {counted(present, 'category', 'categories')}",
        ),
        Figure("Macro F1", f"{evaluation.macro.f1:.3f}", f"weighted by images: {evaluation.weighted.f1:.3f}"),
        Figure("Loss", f"{evaluation.loss:.3f}", "mean cross entropy, in nats"),
        Figure(
            "Calibration error",
            f"{evaluation.calibration.error:.1%}",
            f"at a mean confidence of {evaluation.mean_confidence:.1%}",
        ),
    ]


def worst_first(evaluation: Evaluation, categories: Sequence[str]) -> list[CategoryRow]:
    """The categories by rising F1, those of which it is undefined last; of equals those with images first.

    A category without an image that something was taken for has an F1, of 0.
    """
    rows = category_rows(evaluation.per_class, categories)
    return sorted(rows, key=lambda row: (math.inf if row.f1 is None else row.f1, row.support == 0))


def without_images(counts: np.ndarray, categories: Sequence[str]) -> Named:
    """The categories of which `counts`, (C,), int64, has no image; as many are named as one reads."""
    names = [name for name, count in zip(categories, counts, strict=True) if not count]
    return Named(names[:MAX_NAMED_ABSENT], len(names))


def with_pictures(mistakes: Sequence[Mistake], root: Path) -> list[tuple[Mistake, str]]:
    """Mistakes with thumbnails of their files below `root`."""
    return [(mistake, thumbnail(root / mistake.file_name)) for mistake in mistakes]


def confusion_view(evaluation: Evaluation, categories: Sequence[str]) -> ConfusionTable | ConfusionMap:
    """The matrix as a table or as a map, whichever can be read."""
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
    """A PNG that is transparent where nothing is; a pixel has the colour of its hits or of its mistakes.

    Of those that are the larger share of the images of its rows, and the share is its strength: a mistake
    among neighbours hides no hundred hits, and off the diagonal, where there are none, it is seen.
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
    levels = np.rint(alpha * 127) + 128 * (mistakes > hits)  # to 127: hits, from 129: mistakes
    image = Image.fromarray(levels.astype(np.uint8)).convert("P")
    image.putpalette([*HIT_COLOUR * 128, *MISTAKE_COLOUR * 128])
    return png(image, transparency=bytes(level % 128 * 255 // 127 for level in range(256)))
