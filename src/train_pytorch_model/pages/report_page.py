"""A training as a page: what was done, how it went, how good the model is, and how to do it again."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from train_pytorch_model import __version__
from train_pytorch_model.config import DISPLAY_NAMES, TrainConfig
from train_pytorch_model.evaluation import Evaluation
from train_pytorch_model.formats.evaluation_directory import Mistake, calibration_rows, confused_rows
from train_pytorch_model.image_check import BadImage
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.pages.chart import NUMBER, PERCENT, Chart, Series, line_chart
from train_pytorch_model.pages.evaluation_page import (
    MAX_PAIRS,
    MAX_ROWS,
    Figure,
    confusion_view,
    figures,
    without_images,
    worst_first,
)
from train_pytorch_model.pages.page import render_page
from train_pytorch_model.recipe import Recipe
from train_pytorch_model.time_budget import TimeBudget, duration
from train_pytorch_model.wording import counted

MAX_BALANCE = 24  # categories that are all listed; of more, the largest and the smallest
MAX_ENDS = 10  # of each of these
MAX_BAD_IMAGES = 50
MAX_EPOCH_ROWS = 200
GOOD = 0.95  # balanced accuracy, from which on nobody needs advice
LARGE_GAP = 0.2  # between training and validation accuracy
FEW_IMAGES = 10  # validation images of a category; below, its numbers are accidents


@dataclass(frozen=True)
class DataSet:
    """One of the two image directories of a run."""

    title: str
    """What messages call it, such as `Training dataset`."""
    name: str
    """Of its folder, without the way there."""
    counts: np.ndarray
    """(C,), int64: images of each category, without those that were left out."""
    ignored: Mapping[str, int]
    """What lies there and was not taken, in words, with its count."""

    @property
    def images(self) -> int:
        return int(self.counts.sum())


@dataclass(frozen=True)
class Report:
    """What there is to tell of a run that is over."""

    spec: ClassifierSpec
    evaluation: Evaluation
    """Of the model that came out, on the validation images."""
    mistakes: Sequence[tuple[Mistake, str]]
    """With their thumbnails, the most confident first."""
    precision: str
    """The number format in which it was validated, such as `bfloat16`."""
    config: TrainConfig
    recipe: Recipe
    """As it was decided."""
    plan: Mapping[str, str]
    history: Sequence[Mapping[str, float]]
    """The metrics of each epoch, under their documented names."""
    best_epoch: int
    stopped: str
    """Why it ended before the last epoch, and what that gave up; empty where it did not."""
    advice: Sequence[str]
    """What would make it better, in sentences, with options between backticks; shown where it is not good."""
    rollbacks: int
    """How often the loss was not finite and the learning rate was halved."""
    training: DataSet
    validation: DataSet
    bad_images: Sequence[BadImage]
    budget: TimeBudget
    versions: Mapping[str, str]
    command: Sequence[str]
    """A line an option; its folders without the ways to them."""
    fingerprint: Mapping[str, str]
    """What makes this run this run."""
    ended: str
    """When, in words."""


@dataclass(frozen=True)
class BalanceRow:
    """A category and its images, also as shares of the largest category's."""

    category: str
    training: int
    validation: int
    training_share: float
    validation_share: float


@dataclass(frozen=True)
class Balance:
    """How the images are spread over the categories."""

    rows: Sequence[BalanceRow]
    """By falling number of training images: all categories, or the first."""
    last_rows: Sequence[BalanceRow]
    """The last of them, where not all are listed."""
    rest: int
    """Categories between the two."""
    profile: Chart | None
    """The training images of all categories, the largest first, where not all are listed."""
    largest: int
    smallest: int
    """Of the categories that have training images."""


@dataclass(frozen=True)
class Part:
    """A part of the time of a run."""

    kind: str
    name: str
    time: str
    share: float
    explanation: str


def render_report(report: Report) -> str:
    """The page. Names of files and categories may be anything."""
    categories, evaluation = report.spec.categories, report.evaluation
    rows = worst_first(evaluation, categories)
    return render_page(
        "report.html",
        title=f"Training of a {report.spec.architecture}",
        report=report,
        version=__version__,
        run_time=duration(report.budget.total_s),
        figures=[_best_epoch(report), *figures(evaluation)],
        notes=list(_notes(report)),
        charts=_charts(report),
        training_loss=_training_loss(report.recipe),
        epochs=report.history[-MAX_EPOCH_ROWS:],
        confusion=confusion_view(evaluation, categories),
        pairs=confused_rows(evaluation, categories, MAX_PAIRS),
        rows=rows[:MAX_ROWS],
        training_images=dict(zip(categories, report.training.counts.tolist(), strict=True)),
        bins=calibration_rows(evaluation.calibration),
        balance=balance_of(report.training.counts, report.validation.counts, categories),
        absent={
            report.training.title: without_images(report.training.counts, categories),
            report.validation.title: without_images(evaluation.per_class.support, categories),
        },
        bad_images=report.bad_images[:MAX_BAD_IMAGES],
        parts_of_time=_parts(report.budget),
        parameters={DISPLAY_NAMES[name]: value for name, value in asdict(report.config).items()},
        recipe=_recipe(report.recipe),
    )


def balance_of(training: np.ndarray, validation: np.ndarray, categories: Sequence[str]) -> Balance:
    """Of the images of each category: (C,) each, int64."""
    most = max(int(training.max()), int(validation.max()), 1)
    order = np.argsort(-training, kind="stable").tolist()

    def row(index: int) -> BalanceRow:
        images, others = int(training[index]), int(validation[index])
        return BalanceRow(categories[index], images, others, images / most, others / most)

    is_short = len(order) <= MAX_BALANCE
    shown, last = (order, []) if is_short else (order[:MAX_ENDS], order[-MAX_ENDS:])
    profile = None
    if not is_short:
        ranks = range(1, len(order) + 1)
        series = [Series("training images", training[order].tolist())]
        profile = line_chart("Images of each category", ranks, series, NUMBER, from_zero=True, x_name="place")
    return Balance(
        rows=[row(index) for index in shown],
        last_rows=[row(index) for index in last],
        rest=len(order) - len(shown) - len(last),
        profile=profile,
        largest=int(training.max()),
        smallest=int(training[training > 0].min(initial=training.max())),
    )


def _best_epoch(report: Report) -> Figure:
    return Figure(
        "Best epoch",
        f"{report.best_epoch}",
        f"of {len(report.history)}; the lowest validation loss",
    )


def _notes(report: Report) -> Iterator[str]:
    """What one should know before the numbers, in sentences without names of others."""
    if report.stopped:
        yield report.stopped
    elif report.best_epoch == len(report.history) and _can_improve(report):
        yield (
            "The best epoch is the last, its loss was still falling: more epochs may give a better model, as"
            f" `--epochs {3 * len(report.history)}`."
        )
    if report.rollbacks:
        yield (
            f"The loss was not finite {counted(report.rollbacks, 'time', 'times')}: the"
            " training went back and halved the learning rate. A lower --learning-rate avoids it."
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
            f" validation images: {their} numbers are partly chance."
        )


def _gap(report: Report) -> str:
    """What to know of a network that is much better on the images it has learned; empty where it is not."""
    best = report.history[report.best_epoch - 1]
    trained, validated = 1 - best["Train error"], best["Top 1 accuracy"]
    if trained - validated < LARGE_GAP:
        return ""
    return (
        f"In the best epoch the model was right on {trained:.0%} of the training images, and on"
        f" {validated:.0%} of the validation images: more training images would help most."
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


def _training_loss(recipe: Recipe) -> str:
    """What makes it another function than the validation loss, in words; empty where nothing does."""
    smoothed = ["label smoothing"] if recipe.label_smoothing else []
    balanced = ["balanced classes"] if recipe.balance_classes else []
    return " and ".join(smoothed + balanced)


def _parts(budget: TimeBudget) -> list[Part]:
    total_s = max(budget.total_s, 1e-9)
    parts = (
        ("computing", "Training batches", budget.computing_s, "the network and its gradients"),
        ("waiting", "Waiting for images", budget.waiting_s, "reading and decoding could not keep up"),
        ("validation-time", "Validation", budget.validation_s, "after each epoch"),
        ("rest", "The rest", budget.rest_s, "starting, checkpoints, this report"),
    )
    return [Part(kind, name, duration(s), s / total_s, why) for kind, name, s, why in parts]


def _recipe(recipe: Recipe) -> dict[str, str]:
    """The recipe in the words of `init-model`; what is off is said, too."""
    return {name.replace("_", " ").capitalize(): _plain(value) for name, value in asdict(recipe).items()}


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"{number:g}" for number in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
