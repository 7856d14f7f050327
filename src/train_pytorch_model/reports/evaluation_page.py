"""The page of an evaluation."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image

from train_pytorch_model.evaluation import tables, verdict
from train_pytorch_model.evaluation.metrics import PERCENTS, Confusion, Evaluation, Outcomes
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.reports.chart import line_chart
from train_pytorch_model.reports.galleries import Gallery
from train_pytorch_model.reports.page import render_page, shorten
from train_pytorch_model.reports.pictures import encode

MAX_CELL_FILES = 6  # whose names the page has for a cell of the matrix
MAX_FILES = 200  # right and wrong each, about 40 bytes
MAX_ROWS = 1000  # of the table of categories, with 8 elements each
MAX_PAIRS = 12
MAX_TABLE = 20  # categories; more are drawn as a heat map
MAX_UPRIGHT = 72  # characters across all column headings; beyond, the names are rotated
MAX_MAP_SIDE = 300  # px, as on a phone; with more categories, several share a pixel
MAX_LABELS = 20  # on each side of the map
MAX_MAP_CELLS = 50_000  # cells whose counts the page contains, about 12 bytes each
MIN_ALPHA = 0.35  # keeps a single mistake visible
# Both have a contrast of 3:1 with the light and the dark background.
HIT_COLOUR, MISTAKE_COLOUR = (47, 125, 225), (224, 86, 43)


def render_evaluation(
    evaluation: Evaluation,
    spec: ClassifierSpec,
    dataset_name: str,
    galleries: Sequence[Gallery],
    files: Mapping[str, Sequence[str]],
    num_unreadable: int,
    familiar: str = "",  # how many of the images look like training images, in words
) -> str:
    """Render the page of an evaluation; `files` are as of `files_by_cell`."""
    return render_page(
        "evaluation.html",
        **common_values(evaluation, spec),
        dataset_name=dataset_name,
        images=evaluation.images,
        absent=without_images(evaluation.per_class.support, spec.categories),
        num_unreadable=num_unreadable,
        familiar=familiar,
        galleries=galleries,
        files=files,
    )


def common_values(evaluation: Evaluation, spec: ClassifierSpec) -> dict[str, Any]:
    """What the pages of an evaluation and of a training both show, by the names in their templates."""
    answers = line_chart(
        "Accuracy of the most confident",
        PERCENTS,
        {"accuracy": evaluation.coverage.accuracies},
        is_percent=True,
        x_name="percent of images answered",
    )
    return {
        "evaluation": evaluation,
        "spec": spec,
        "verdict": verdict.verdict(evaluation, spec.categories),
        "baseline": (evaluation.baseline, verdict.describe_baseline(evaluation, spec.categories)),
        "confusion": _confusion_view(evaluation, spec.categories),
        "pairs": tables.confused_rows(evaluation, spec.categories, MAX_PAIRS),
        "rows": tables.worst_first(evaluation, spec.categories)[:MAX_ROWS],
        "bins": evaluation.calibration.bins,
        "answers": answers,
    }


def without_images(counts: np.ndarray, categories: Sequence[str]) -> list[str]:
    """The categories with a count of 0 in `counts`, (C,), int64."""
    return [name for name, count in zip(categories, counts, strict=True) if not count]


def files_by_cell(
    outcomes: Outcomes, images: ImageDirectory, indices: np.ndarray
) -> dict[str, list[str]]:
    """Names of files in cells of the matrix: `true,predicted` → some names, the most confident
    first.

    `indices` (N,) are those of the images of the outcomes.
    """
    order = np.argsort(-outcomes.confidences, kind="stable")
    is_hit = outcomes.target_ranks[order] == 0
    rows = np.concatenate([order[~is_hit][:MAX_FILES], order[is_hit][:MAX_FILES]])
    files: dict[str, list[str]] = {}
    for row, original in zip(rows.tolist(), images.original_names(indices[rows]), strict=True):
        cell = files.setdefault(f"{outcomes.targets[row]},{outcomes.predicted[row]}", [])
        if len(cell) < MAX_CELL_FILES:
            cell.append(shorten(original or images.file_names[indices[row]]))
    return files


def _confusion_view(evaluation: Evaluation, categories: Sequence[str]) -> dict[str, Any]:
    """The confusion matrix as a table of counts, or as a heat map of more than `MAX_TABLE`
    categories.
    """
    names, support = [shorten(name) for name in categories], evaluation.per_class.support
    confusion = evaluation.confusion
    view: dict[str, Any] = {"names": names, "support": support.tolist()}
    if len(names) <= MAX_TABLE:
        return view | {
            "rows": [row.tolist() for row in confusion.rows()],  # (C, C), true by predicted
            "is_upright": len(names) * max(map(len, names))
            <= MAX_UPRIGHT,  # the names fit above the columns
        }
    order = np.argsort(-confusion.images, kind="stable")
    cells = np.stack([confusion.targets, confusion.predicted, confusion.images], axis=1)[order]
    per_pixel = math.ceil(len(names) / MAX_MAP_SIDE)  # categories
    view["picture"], view["per_pixel"] = _picture(confusion, support, per_pixel), per_pixel
    view["side"] = math.ceil(len(names) / per_pixel) * per_pixel  # of the picture, in categories
    view["labelled"] = range(0, len(names), math.ceil(len(names) / MAX_LABELS))
    view["cells"] = cells[:MAX_MAP_CELLS].tolist()  # (true, predicted, images), to show on hover
    view["rest"] = max(
        cells[MAX_MAP_CELLS:, 2].tolist(), default=0
    )  # the largest count that is not shown
    return view


def _picture(confusion: Confusion, support: np.ndarray, per_pixel: int) -> str:
    """Draw the matrix as a PNG data URI: hits and mistakes have their colours, empty cells are
    transparent.

    A pixel shows its hits or its mistakes, whichever are more, the more opaque the larger their
    share of the images in its rows. One mistake between neighbouring categories thus does not hide
    a hundred hits, and off the diagonal, where there are no hits, mistakes are visible.
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
    return encode(image, transparency=bytes(level % 128 * 255 // 127 for level in range(256)))
