"""The page of a training."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import assignment, counted, display_name, quoted
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.time_budget import TimeBudget
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.reports.chart import Chart, line_chart
from train_pytorch_model.reports.evaluation_page import common_values, without_images
from train_pytorch_model.reports.galleries import Gallery
from train_pytorch_model.reports.page import render_page

MAX_BALANCE = 24  # categories; of more, only the largest and the smallest are listed
MAX_ENDS = 10  # listed of each
MAX_UNREADABLE_IMAGES = 50
MAX_EPOCH_ROWS = 200
GOOD = 0.95  # balanced accuracy from which on no advice is given
LARGE_GAP = 0.2  # between training and validation accuracy
FEW_IMAGES = 10  # validation images of a category; with fewer, its metrics are noise


@dataclass(frozen=True)
class Report:
    """The contents of the report of a finished run."""

    spec: ClassifierSpec
    evaluation: Evaluation  # of the resulting model, on the validation images
    galleries: Sequence[Gallery]  # sections of pictures, after the table of categories
    files: Mapping[str, Sequence[str]]  # as of `files_by_cell`
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
    unreadable_images: Sequence[UnreadableImage]
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
        unreadable_images=report.unreadable_images[:MAX_UNREADABLE_IMAGES],
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
            f" give a better model, for example {assignment('epochs', 3 * len(history))}."
        )
    if report.rollbacks:
        yield (
            f"The loss was not finite {counted(report.rollbacks, 'time', 'times')}: training"
            f" rolled back and halved the learning rate. A lower {quoted('learning_rate')} avoids this."
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
