"""The confusion matrix as a page shows it: a table of counts, or a heat map of many categories."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from train_pytorch_model.evaluation.metrics import Confusion, Evaluation
from train_pytorch_model.reports.page import shorten
from train_pytorch_model.reports.pictures import encode

MAX_TABLE = 20  # categories; more are drawn as a heat map
MAX_UPRIGHT = 72  # characters across all column headings; beyond, the names are rotated
MAX_MAP_SIDE = 300  # px, as on a phone; with more categories, several share a pixel
MAX_LABELS = 20  # on each side of the map
MAX_MAP_CELLS = 50_000  # cells whose counts the page contains, about 12 bytes each
MIN_ALPHA = 0.35  # keeps a single mistake visible
# Both have a contrast of 3:1 with the light and the dark background.
HIT_COLOUR = (47, 125, 225)
MISTAKE_COLOUR = (224, 86, 43)


def confusion_view(evaluation: Evaluation, categories: Sequence[str]) -> dict[str, Any]:
    """Return what a template draws, a table of at most `MAX_TABLE` categories or else a map."""
    names = [shorten(name) for name in categories]
    support = evaluation.per_class.support
    view = {"names": names, "support": support.tolist()}
    if len(names) <= MAX_TABLE:
        return view | _table(evaluation.confusion, names)
    return view | _map(evaluation.confusion, support)


def _table(confusion: Confusion, names: Sequence[str]) -> dict[str, Any]:
    # Then the names fit above the columns.
    is_upright = len(names) * max(map(len, names)) <= MAX_UPRIGHT
    return {
        "rows": [row.tolist() for row in confusion.rows()],  # (C, C), true by predicted
        "is_upright": is_upright,
    }


def _map(confusion: Confusion, support: np.ndarray) -> dict[str, Any]:
    num_classes = confusion.num_classes
    per_pixel = math.ceil(num_classes / MAX_MAP_SIDE)  # categories
    order = np.argsort(-confusion.images, kind="stable")
    cells = np.stack([confusion.targets, confusion.predicted, confusion.images], axis=1)[order]
    hidden_counts = cells[MAX_MAP_CELLS:, 2].tolist()
    return {
        "picture": _picture(confusion, support, per_pixel),
        "per_pixel": per_pixel,
        "side": math.ceil(num_classes / per_pixel) * per_pixel,  # of the picture, in categories
        "labelled": range(0, num_classes, math.ceil(num_classes / MAX_LABELS)),
        "cells": cells[:MAX_MAP_CELLS].tolist(),  # (true, predicted, images), to show on hover
        "rest": max(hidden_counts, default=0),  # the largest count that is not shown
    }


def _picture(confusion: Confusion, support: np.ndarray, per_pixel: int) -> str:
    """Draw the matrix as a PNG data URI.

    Hits and mistakes have their colours, empty cells are transparent. A pixel shows its hits or its
    mistakes, whichever are more, the more opaque the larger their fraction of the images in its
    rows. One mistake between neighbouring categories thus does not hide a hundred hits, and off the
    diagonal, where there are no hits, mistakes are visible.
    """
    side = math.ceil(confusion.num_classes / per_pixel)
    pixels = confusion.targets // per_pixel * side + confusion.predicted // per_pixel  # (K,)
    is_hit = confusion.targets == confusion.predicted  # (K,)

    def images_of(is_chosen: np.ndarray) -> np.ndarray:
        """Return (side, side): the images in the chosen cells of each pixel."""
        images = np.bincount(pixels[is_chosen], confusion.images[is_chosen], side**2)
        return images.reshape(side, side)

    hits = images_of(is_hit)
    mistakes = images_of(~is_hit)
    of_rows = np.bincount(np.arange(confusion.num_classes) // per_pixel, support)  # (side,)
    fractions = np.maximum(hits, mistakes) / np.maximum(of_rows, 1)[:, np.newaxis]
    alpha = np.where(fractions > 0, np.maximum(np.sqrt(fractions), MIN_ALPHA), 0)
    levels = np.rint(alpha * 127) + 128 * (mistakes > hits)  # up to 127: hits, from 129: mistakes
    image = Image.fromarray(levels.astype(np.uint8)).convert("P")
    image.putpalette([*HIT_COLOUR * 128, *MISTAKE_COLOUR * 128])
    opacities = bytes(level % 128 * 255 // 127 for level in range(256))
    return encode(image, transparency=opacities)
