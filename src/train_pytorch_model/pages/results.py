"""Render an evaluation, and the report on a training, as HTML pages."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from PIL import Image

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.bad_images import BadImage
from train_pytorch_model.measures import evaluation_directory as directory
from train_pytorch_model.measures.evaluation import PERCENTS, Confusion, Evaluation, Outcomes
from train_pytorch_model.measures.time_budget import TimeBudget
from train_pytorch_model.pages.chart import Chart, line_chart
from train_pytorch_model.pages.page import Gallery, encode, render_page, shorten
from train_pytorch_model.words.errors import counted
from train_pytorch_model.words.settings import DecidedRecipe, TrainConfig, display_name

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
MAX_BALANCE = 24  # categories; of more, only the largest and the smallest are listed
MAX_ENDS = 10  # listed of each
MAX_BAD_IMAGES = 50
MAX_EPOCH_ROWS = 200
GOOD = 0.95  # balanced accuracy from which on no advice is given
LARGE_GAP = 0.2  # between training and validation accuracy
FEW_IMAGES = 10  # validation images of a category; with fewer, its metrics are noise


def render(
    evaluation: Evaluation,
    spec: ClassifierSpec,
    dataset_name: str,
    galleries: Sequence[Gallery],
    files: Mapping[str, Sequence[str]],
    left_out: int,  # images, which could not be read
    familiar: str = "",  # how many of the images look like training images, in words
) -> str:
    """Render the page of an evaluation; `files` are as of `files_of_cells`."""
    return render_page(
        "evaluation.html",
        **common_values(evaluation, spec),
        dataset_name=dataset_name,
        images=evaluation.images,
        absent=without_images(evaluation.per_class.support, spec.categories),
        left_out=left_out,
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
        "verdict": directory.verdict(evaluation, spec.categories),
        "baseline": (evaluation.baseline, directory.describe_baseline(evaluation, spec.categories)),
        "confusion": _confusion_view(evaluation, spec.categories),
        "pairs": directory.confused_rows(evaluation, spec.categories, MAX_PAIRS),
        "rows": directory.worst_first(evaluation, spec.categories)[:MAX_ROWS],
        "bins": evaluation.calibration.bins,
        "answers": answers,
    }


def without_images(counts: np.ndarray, categories: Sequence[str]) -> list[str]:
    """The categories with a count of 0 in `counts`, (C,), int64."""
    return [name for name, count in zip(categories, counts, strict=True) if not count]


def files_of_cells(
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


@dataclass(frozen=True)
class Report:
    """The contents of the report of a finished run."""

    spec: ClassifierSpec
    evaluation: Evaluation  # of the resulting model, on the validation images
    galleries: Sequence[Gallery]  # sections of pictures, after the table of categories
    files: Mapping[str, Sequence[str]]  # as of `files_of_cells`
    calibrated: str  # what has been done about the probabilities, as a sentence
    seen: str  # what images like training images mean for the accuracy; empty without any
    precision: str  # the dtype of validation, such as `bfloat16`
    config: TrainConfig
    recipe: DecidedRecipe
    plan: Mapping[str, str]
    history: Sequence[
        Mapping[str, float]
    ]  # the metrics of each epoch, under their documented names
    best_epoch: int
    stopped: (
        str  # why training ended before the last epoch, and what it skipped; empty if it did not
    )
    advice: Sequence[str]  # what would improve a model that is not good, with options in backticks
    rollbacks: int  # how often the loss was not finite and the learning rate was halved
    training: ImageDirectory
    validation: ImageDirectory  # without the images that were left out
    bad_images: Sequence[BadImage]
    budget: TimeBudget
    versions: Mapping[str, str]
    command: Sequence[
        str
    ]  # the command line, one option per line, with folders but not their paths
    fingerprint: Mapping[str, str]  # the identity of the run
    ended: str  # when, for display


def render_report(report: Report) -> str:
    """Render the page. Names of files and categories may contain anything."""
    categories, evaluation, recipe = report.spec.categories, report.evaluation, report.recipe
    smoothed = {"label smoothing": recipe.label_smoothing, "CutMix": recipe.cutmix}
    smoothed["class balancing"] = recipe.balance_classes
    training, validation = report.training.class_counts(), report.validation.class_counts()
    return render_page(
        "report.html",
        **common_values(evaluation, report.spec),
        report=report,
        notes=list(_notes(report)),
        charts=_charts(report),
        training_loss=" and ".join(name for name, value in smoothed.items() if value),
        epochs=report.history[-MAX_EPOCH_ROWS:],
        training_images=dict(zip(categories, training.tolist(), strict=True)),
        balance=balance_of(training, validation, categories),
        absent={
            report.training.port: without_images(training, categories),
            report.validation.port: without_images(evaluation.per_class.support, categories),
        },
        bad_images=report.bad_images[:MAX_BAD_IMAGES],
        parameters={display_name(name): value for name, value in asdict(report.config).items()},
        recipe={
            name.replace("_", " ").capitalize(): _plain(value)
            for name, value in asdict(recipe).items()
        },
    )


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"{number:g}" for number in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def balance_of(
    training: np.ndarray, validation: np.ndarray, categories: Sequence[str]
) -> dict[str, Any]:
    """How the images are distributed over the categories, from the images of each: (C,), int64."""
    order = np.argsort(-training, kind="stable")
    largest = int(training.max())
    rows = [
        (categories[index], int(training[index]), int(validation[index]))
        for index in order.tolist()
    ]
    view: dict[str, Any] = {
        "largest": largest,
        "smallest": int(
            training[training > 0].min(initial=largest)
        ),  # of those with training images
        "most": max(largest, int(validation.max()), 1),  # of a category in either dataset
    }
    if len(rows) <= MAX_BALANCE:
        return view | {"rows": rows, "last_rows": [], "rest": 0, "profile": None}
    ranks, counts = range(1, len(rows) + 1), {"training images": training[order].tolist()}
    return view | {
        "rows": rows[:MAX_ENDS],
        "last_rows": rows[-MAX_ENDS:],
        "rest": len(rows) - 2 * MAX_ENDS,
        "profile": line_chart("Images per category", ranks, counts, x_name="rank"),
    }


def _notes(report: Report) -> Iterator[str]:
    """Remarks on the metrics, as sentences without file or category names."""
    history, counts = report.history, report.validation.class_counts()
    losses = [record["Valid loss"] for record in history]
    is_falling = report.best_epoch == len(history) > 1 and losses[-1] < 0.99 * losses[-2]
    if report.seen:
        yield report.seen
    if report.stopped:
        yield report.stopped
    elif is_falling and len(report.evaluation.mistakes):
        yield (
            "The best epoch is the last, and the validation loss was still falling: more epochs may"
            " give a"
            f" better model, for example `--epochs {3 * len(history)}`."
        )
    if report.rollbacks:
        yield (
            f"The loss was not finite {counted(report.rollbacks, 'time', 'times')}: training"
            " rolled back and halved the learning rate. A lower `--learning-rate` avoids this."
        )
    if lost := sum(not math.isfinite(loss) for loss in losses):
        yield f"The validation loss was not finite in {lost} of {len(history)} epochs."
    if report.evaluation.balanced_accuracy < GOOD:
        yield from report.advice
    best = history[report.best_epoch - 1]
    trained, validated = 1 - best["Train error"], best["Top 1 accuracy"]
    if trained - validated >= LARGE_GAP:
        yield (
            f"The model overfits: in the best epoch its accuracy was {trained:.0%} on the training"
            " images,"
            f" but {validated:.0%} on the validation images. More training images would help most."
        )
    if few := int((counts < FEW_IMAGES).sum()):
        have, their = ("has", "its") if few == 1 else ("have", "their")
        yield (
            f"{few:,} of {len(counts):,} categories {have} fewer than {FEW_IMAGES} validation"
            f" images: {their}"
            " metrics are noisy."
        )


def _charts(report: Report) -> list[Chart]:
    def values(key: str) -> list[float]:
        return [record[key] for record in report.history]

    accuracies = [1 - error for error in values("Train error")]
    charts = {
        "Loss": {"validation": values("Valid loss"), "training": values("Train loss")},
        "Accuracy": {"validation": values("Top 1 accuracy"), "training": accuracies},
        "Learning rate": {"at the end of the epoch": values("Learning rate")},
        "Images per second": {"in training": values("Train images per second")},
    }
    epochs = [int(epoch) for epoch in values("epoch")]
    return [
        line_chart(title, epochs, series, is_percent=title == "Accuracy", mark=report.best_epoch)
        for title, series in charts.items()
    ]
