"""Images whose category is probably wrong.

`suspects.csv`, in the trained model directory, lists them, the most suspicious first: those that
are more probably wrong than right. Both data sets are judged by what a run knows anyway: the
validation images by predictions of a model that was not trained on them, and the training images by
their margins while they were learned.
"""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.reading import MalformedFileError, file_inside, read_bounded
from train_pytorch_model.formats.spreadsheet_cells import as_meant, shown_rows
from train_pytorch_model.formats.writing import csv_text, table_of
from train_pytorch_model.quality.ranking import MIN_PROBABILITY, most_wrong_first, probably_wrong

SUSPECTS = "suspects.csv"
SURE = 0.8  # of a category that an image may lack, or have wrongly: a weak model is sure of none
MAX_BYTES = 64 << 20  # of a table that is read
MAX_MARGIN = 0.5  # of a training image: above, the network prefers the given category


@dataclass(frozen=True)
class Suspects:
    """K images of a data set, the most suspicious first."""

    indices: np.ndarray  # (K,), int64
    proposed: np.ndarray  # (K,), int64: the class indices of more probable categories
    wrong: np.ndarray  # (K,), float64: how probable it is that the given category is wrong
    num_images: int  # of the whole data set


@dataclass(frozen=True)
class Suspect:
    """A row of suspects.csv."""

    file: str
    given: str
    proposed: str
    wrong: float  # how probable it is that the given category is wrong, from 0 to 1
    dataset: str
    original: str  # the file's name before it was copied; empty if unknown


def suspects_by_prediction(targets: np.ndarray, logits: np.ndarray, wrong: np.ndarray) -> Suspects:
    """Return the suspects among N images with targets (N,), by logits (N, C).

    `wrong` (N,) says how probable it is that each target is wrong.
    """
    chosen = probably_wrong(wrong)
    return Suspects(
        chosen, best_others(logits[chosen], targets[chosen]), wrong[chosen], len(targets)
    )


def best_others(logits: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return (N,), int64: the most probable category of each image besides its own."""
    others = logits.copy()
    others[np.arange(len(targets)), targets] = -np.inf
    best: np.ndarray = others.argmax(axis=1)
    return best


def suspects_by_margin(margins: np.ndarray, others: np.ndarray, held_out: Suspects) -> Suspects:
    """Return the suspects among N training images: as many, of all, as among those `held_out`.

    The mean margins (N,) of their categories over the best other categories are from 0 to 1, and
    NaN for an image without; `others` (N,) are the class indices of these categories. Margins rank
    images as predictions do, but do not tell by themselves how many labels are wrong.
    """
    order = np.argsort(margins, kind="stable")  # NaN last
    fraction = len(held_out.indices) / max(held_out.num_images, 1)
    candidates = order[: round(fraction * len(margins))]
    chosen = candidates[margins[candidates] < MAX_MARGIN]
    if not len(chosen):
        return Suspects(chosen, others[chosen], np.empty(0), len(margins))
    ranks = (np.arange(len(chosen)) + 0.5) / len(candidates)
    ranks_held_out = (np.arange(len(held_out.indices)) + 0.5) / len(held_out.indices)
    wrong = np.interp(ranks, ranks_held_out, held_out.wrong)
    return Suspects(chosen, others[chosen], wrong, len(margins))


def can_tell(label_probabilities: np.ndarray, fraction: float) -> float:
    """Return how many of wrong labels would be suspects, from 0 to 1, were a `fraction` wrong.

    `label_probabilities` (N, C) are predictions; a wrong label is as often one category as another.
    """
    num_classes = label_probabilities.shape[1]
    by_chance = fraction / num_classes
    any_way = (1 - fraction) * label_probabilities + by_chance
    is_found = by_chance * (1 - label_probabilities) >= MIN_PROBABILITY * any_way
    return float((is_found * (1 - label_probabilities)).sum() / (len(is_found) * (num_classes - 1)))


def about_suspects(rows: Sequence[Suspect]) -> str:
    """Return how many suspects there are, and how many of them are expected to be wrong."""
    if not rows:
        return ""
    expected = round(sum(row.wrong for row in rows))
    if len(rows) == 1:
        return f"1 image probably has a wrong category: see {SUSPECTS}."
    return (
        f"{len(rows):,} images probably have a wrong category, and about {expected:,} of them"
        f" really do: see {SUSPECTS}."
    )


def suspects_by_label(targets: np.ndarray, probabilities: np.ndarray) -> Suspects:
    """Return the suspects among N images with any number of categories, targets (N, C), bool.

    Confident learning (Northcutt et al. 2021, Confident Learning: Estimating Uncertainty in Dataset
    Labels, equation 1) for each category by itself: having it, and not having it. Of an image, the
    most suspicious answer counts, whose category is `proposed`.
    """
    of_other = np.where(targets, 1 - probabilities, probabilities)  # (N, C)
    counts = targets.sum(axis=0)
    with_it = (probabilities * targets).sum(axis=0) / np.maximum(counts, 1)  # (C,), usually
    without_it = ((1 - probabilities) * ~targets).sum(axis=0) / np.maximum(len(targets) - counts, 1)
    usual = np.where(targets, without_it, with_it)
    is_suspect = (of_other >= usual) & (of_other >= SURE) & (counts > 0)
    wrong_by_category = np.where(is_suspect, of_other, -1.0)
    proposed = wrong_by_category.argmax(axis=1)
    wrong = wrong_by_category.max(axis=1)
    chosen = probably_wrong(wrong, SURE)
    return Suspects(chosen, proposed[chosen], wrong[chosen], len(targets))


def suspect_rows(parts: Sequence[tuple[ImageDirectory, Suspects]]) -> list[Suspect]:
    """Return the rows of suspects.csv, of all data sets.

    The most probable come first; of equals, by how far down each is in the order of its data set.
    """
    rows: list[Suspect] = []
    positions: list[float] = []
    for images, suspects in parts:
        columns = (
            suspects.indices.tolist(),
            suspects.proposed.tolist(),
            suspects.wrong.tolist(),
            images.original_names(suspects.indices),
        )
        for rank, (index, proposed, wrong, original) in enumerate(zip(*columns, strict=True), 1):
            suspect = Suspect(
                file=images.file_names[index],
                given=images.category_of(index),
                proposed=images.label_with(index, proposed),
                wrong=round(wrong, 4),
                dataset=images.port,
                original=original,
            )
            rows.append(suspect)
            positions.append(rank / suspects.num_images)
    order = most_wrong_first(np.array([row.wrong for row in rows]), np.array(positions))
    return [rows[index] for index in order.tolist()]


def suspects_csv(rows: Iterable[Suspect]) -> str:
    """Return the content of a suspects.csv."""
    return csv_text(shown_rows(table_of(Suspect, rows)))


def suspects_in(model: Path) -> list[Suspect]:
    """Return the rows of a model's suspects.csv; none without one. Raises `MalformedFileError`."""
    if not (model / SUSPECTS).exists():
        return []
    text = read_bounded(file_inside(model, SUSPECTS), MAX_BYTES).decode(errors="surrogateescape")
    try:
        rows = list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
        return [
            Suspect(
                file=as_meant(row["file"]),
                given=as_meant(row["given"]),
                proposed=as_meant(row["proposed"]),
                wrong=float(row["wrong"]),
                dataset=row["dataset"],
                original=as_meant(row["original"]),
            )
            for row in rows
        ]
    except (csv.Error, KeyError, TypeError, ValueError) as error:
        raise MalformedFileError(f"{SUSPECTS} is not as training writes it.") from error
