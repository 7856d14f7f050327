"""Render a training report as an HTML page: metrics, curves, data, time, and how to reproduce it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.bad_images import BadImage
from train_pytorch_model.measures.evaluation import Evaluation
from train_pytorch_model.measures.time_budget import TimeBudget
from train_pytorch_model.pages.chart import NUMBER, PERCENT, Chart, Series, line_chart
from train_pytorch_model.pages.evaluation_page import common_values, without_images
from train_pytorch_model.pages.gallery import Gallery
from train_pytorch_model.pages.page import render_page
from train_pytorch_model.words.config import TrainConfig, display_name
from train_pytorch_model.words.recipe import DecidedRecipe
from train_pytorch_model.words.wording import counted

MAX_BALANCE = 24  # categories; of more, only the largest and the smallest are listed
MAX_ENDS = 10  # listed of each
MAX_BAD_IMAGES = 50
MAX_EPOCH_ROWS = 200
GOOD = 0.95  # balanced accuracy from which on no advice is given
LARGE_GAP = 0.2  # between training and validation accuracy
FEW_IMAGES = 10  # validation images of a category; with fewer, its metrics are noise


@dataclass(frozen=True)
class DataSet:
    """One of the two image directories of a run."""

    title: str
    """What messages call it, such as `Training dataset`."""
    name: str
    """Name of its folder, without the path."""
    counts: np.ndarray
    """(C,), int64: images per category, excluding those left out."""
    ignored: Mapping[str, int]
    """Kind of skipped file, in words → count."""

    @property
    def images(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Report:
    """The contents of the report of a finished run."""

    spec: ClassifierSpec
    evaluation: Evaluation
    """Of the resulting model, on the validation images."""
    galleries: Sequence[Gallery]
    """Sections of pictures, after the table of categories."""
    files: Mapping[str, Sequence[str]]
    """As from `evaluation_page.files_of_cells`."""
    calibrated: str
    """What has been done about the probabilities, as a sentence."""
    seen: str
    """What validation images that look like training images mean for the accuracy; empty without any."""
    precision: str
    """The dtype of validation, such as `bfloat16`."""
    config: TrainConfig
    recipe: DecidedRecipe
    """With all defaults decided."""
    plan: Mapping[str, str]
    history: Sequence[Mapping[str, float]]
    """The metrics of each epoch, under their documented names."""
    best_epoch: int
    stopped: str
    """Why training ended before the last epoch, and what it skipped; empty if it did not."""
    advice: Sequence[str]
    """Sentences on what would improve the model, with options in backticks; shown if it is not good."""
    rollbacks: int
    """How often the loss was not finite and the learning rate was halved."""
    training: DataSet
    validation: DataSet
    bad_images: Sequence[BadImage]
    budget: TimeBudget
    versions: Mapping[str, str]
    command: Sequence[str]
    """The command line, one option per line, with folders but not their paths."""
    fingerprint: Mapping[str, str]
    """The identity of the run, as in `TrainingInputs.fingerprint`."""
    ended: str
    """When the run ended, for display."""


@dataclass(frozen=True)
class Balance:
    """How the images are distributed over the categories."""

    rows: Sequence[tuple[str, int, int]]
    """Category, training and validation images, the most training images first: all, or the largest."""
    last_rows: Sequence[tuple[str, int, int]]
    """The smallest ones, if not all are listed."""
    rest: int
    """Number of categories between the two."""
    profile: Chart | None
    """The training images of all categories, the largest first, if not all are listed."""
    largest: int
    smallest: int
    """Among categories that have training images."""
    most: int
    """The largest number of images of a category in either dataset; at least 1."""


def render_report(report: Report) -> str:
    """Render the page. Names of files and categories may contain anything."""
    categories, evaluation = report.spec.categories, report.evaluation
    return render_page(
        "report.html",
        **common_values(evaluation, report.spec),
        report=report,
        notes=list(_notes(report)),
        charts=_charts(report),
        training_loss=_training_loss(report.recipe),
        epochs=report.history[-MAX_EPOCH_ROWS:],
        training_images=dict(zip(categories, report.training.counts.tolist(), strict=True)),
        balance=balance_of(report.training.counts, report.validation.counts, categories),
        absent={
            report.training.title: without_images(report.training.counts, categories),
            report.validation.title: without_images(evaluation.per_class.support, categories),
        },
        bad_images=report.bad_images[:MAX_BAD_IMAGES],
        parameters={display_name(name): value for name, value in asdict(report.config).items()},
        recipe=_recipe(report.recipe),
    )


def balance_of(training: np.ndarray, validation: np.ndarray, categories: Sequence[str]) -> Balance:
    """The class balance, from the images per category: (C,) each, int64."""
    order = np.argsort(-training, kind="stable").tolist()

    def row(index: int) -> tuple[str, int, int]:
        return categories[index], int(training[index]), int(validation[index])

    is_short = len(order) <= MAX_BALANCE
    shown, last = (order, []) if is_short else (order[:MAX_ENDS], order[-MAX_ENDS:])
    profile = None
    if not is_short:
        ranks = range(1, len(order) + 1)
        series = [Series("training images", training[order].tolist())]
        profile = line_chart("Images per category", ranks, series, NUMBER, from_zero=True, x_name="rank")
    return Balance(
        rows=[row(index) for index in shown],
        last_rows=[row(index) for index in last],
        rest=len(order) - len(shown) - len(last),
        profile=profile,
        largest=int(training.max()),
        smallest=int(training[training > 0].min(initial=training.max())),
        most=max(int(training.max()), int(validation.max()), 1),
    )


def _notes(report: Report) -> Iterator[str]:
    """Remarks on the metrics, as sentences without file or category names."""
    if report.seen:
        yield report.seen
    if report.stopped:
        yield report.stopped
    elif report.best_epoch == len(report.history) and _can_improve(report):
        yield (
            "The best epoch is the last, and the validation loss was still falling: more epochs may give a"
            f" better model, for example `--epochs {3 * len(report.history)}`."
        )
    if report.rollbacks:
        yield (
            f"The loss was not finite {counted(report.rollbacks, 'time', 'times')}: training"
            " rolled back and halved the learning rate. A lower `--learning-rate` avoids this."
        )
    lost = sum(not math.isfinite(record["Valid loss"]) for record in report.history)
    if lost:
        yield f"The validation loss was not finite in {lost} of {len(report.history)} epochs."
    if report.evaluation.balanced_accuracy < GOOD:
        yield from report.advice
    if gap := _gap(report):
        yield gap
    few = int((report.validation.counts < FEW_IMAGES).sum())
    if few:
        have, their = ("has", "its") if few == 1 else ("have", "their")
        yield (
            f"{few:,} of {len(report.validation.counts):,} categories {have} fewer than {FEW_IMAGES}"
            f" validation images: {their} metrics are noisy."
        )


def _gap(report: Report) -> str:
    """A remark on overfitting, if training accuracy is much higher than validation accuracy; else empty."""
    best = report.history[report.best_epoch - 1]
    trained, validated = 1 - best["Train error"], best["Top 1 accuracy"]
    if trained - validated < LARGE_GAP:
        return ""
    return (
        f"The model overfits: in the best epoch its accuracy was {trained:.0%} on the training images, but"
        f" {validated:.0%} on the validation images. More training images would help most."
    )


def _can_improve(report: Report) -> bool:
    losses = [record["Valid loss"] for record in report.history[-2:]]
    return len(losses) == 2 and losses[1] < 0.99 * losses[0] and len(report.evaluation.mistakes) > 0


def _charts(report: Report) -> list[Chart]:
    history = report.history
    epochs = [int(record["epoch"]) for record in history]

    def chart(title: str, names: Mapping[str, str]) -> Chart:
        series = [Series(name, [record[key] for record in history]) for name, key in names.items()]
        return line_chart(title, epochs, series, NUMBER, from_zero=True, mark=report.best_epoch)

    accuracy = [
        Series("validation", [record["Top 1 accuracy"] for record in history]),
        Series("training", [1 - record["Train error"] for record in history]),
    ]
    return [
        chart("Loss", {"validation": "Valid loss", "training": "Train loss"}),
        line_chart("Accuracy", epochs, accuracy, PERCENT, from_zero=False, mark=report.best_epoch),
        chart("Learning rate", {"at the end of the epoch": "Learning rate"}),
        chart("Images per second", {"in training": "Train images per second"}),
    ]


def _training_loss(recipe: DecidedRecipe) -> str:
    """What makes the training loss differ from the validation loss, in words; empty if nothing does."""
    smoothed = ["label smoothing"] if recipe.label_smoothing else []
    mixed = ["CutMix"] if recipe.cutmix else []
    balanced = ["class balancing"] if recipe.balance_classes else []
    return " and ".join(smoothed + mixed + balanced)


def _recipe(recipe: DecidedRecipe) -> dict[str, str]:
    """The recipe under the names of `init-model`'s options, including what is off."""
    return {name.replace("_", " ").capitalize(): _plain(value) for name, value in asdict(recipe).items()}


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"{number:g}" for number in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
