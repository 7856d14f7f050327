"""The page of a training."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from train_pytorch_model.config.recipe import DecidedRecipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.config.wording import assignment, counted, display_name, quoted
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.race_table import sentences, table_rows
from train_pytorch_model.evaluation.time_budget import TimeBudget
from train_pytorch_model.evaluation.verdict import describe_trust, verdict
from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.race_record import RaceRecord
from train_pytorch_model.formats.trained_directory import EVALUATION
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.inputs.unreadable_images import UnreadableImage
from train_pytorch_model.reports.chart import Chart, line_chart
from train_pytorch_model.reports.evaluation_values import without_images
from train_pytorch_model.reports.gallery import Gallery
from train_pytorch_model.reports.page import render_page
from train_pytorch_model.reports.view import view_of

MAX_BALANCE = 24  # categories; of more, only the largest and the smallest are listed
MAX_ENDS = 10  # listed of each
MAX_UNREADABLE_IMAGES = 50
MAX_EPOCH_ROWS = 200
GOOD = 0.95  # quality from which on no advice is given
LARGE_GAP = 0.2  # between training and validation accuracy
FEW_IMAGES = 10  # validation images of a category; with fewer, its metrics are noise


@dataclass(frozen=True)
class Report:
    """The contents of the report of a finished run."""

    spec: ClassifierSpec
    evaluation: AnyEvaluation  # of the resulting model, on the validation images
    galleries: Sequence[Gallery]  # sections of pictures, after the table of categories
    files: Mapping[str, Sequence[str]]  # as of `View.files`
    calibrated: str  # what has been done about the probabilities, as a sentence
    look_alikes: str  # what images like training images mean for the accuracy; empty without any
    about_suspects: str  # why no category is suspected; empty otherwise
    precision: str  # the dtype of validation, such as `bfloat16`
    config: TrainConfig
    recipe: DecidedRecipe
    plan: Mapping[str, str]
    history: Sequence[Mapping[str, float]]  # the metrics of each epoch, under documented names
    best_epoch: int
    # Why training ended before the last epoch, and what it skipped; empty if it did not.
    stopped: str
    advice: Sequence[str]  # what would improve a model that is not good, with options in backticks
    rollbacks: int  # how often the loss was not finite and the learning rate was halved
    training: ImageDirectory
    validation: ImageDirectory  # without the images that were left out
    unreadable_images: Sequence[UnreadableImage]
    budget: TimeBudget
    versions: Mapping[str, str]
    # The command line, one option per line, with folders but not their paths.
    command: Sequence[str]
    fingerprint: Mapping[str, str]  # the identity of the run
    ended: str  # when, for display
    race: RaceRecord | None = None  # by which the network was chosen
    test: AnyEvaluation | None = None  # of the same model, on images that training has not seen
    test_images: ImageDirectory | None = None  # all of these images


def render_report(report: Report) -> str:
    """Render the page. Names of files and categories may contain anything."""
    categories = report.spec.categories
    training = report.training.class_counts()
    validation = report.validation.class_counts()
    view = view_of(report.evaluation)
    values = view.values(report.evaluation, report.spec)
    race = report.race
    values |= {
        "race_rows": table_rows(race) if race else [],
        "race_sentences": list(sentences(race)) if race else [],
    }
    if report.test:
        values |= {
            "verdict": verdict(report.test, categories),
            "trust": describe_trust(report.test),
        }
    return render_page(
        view.report,
        **values,
        report=report,
        evaluation_page=f"{EVALUATION}/{PAGE}",
        notes=list(_notes(report)),
        charts=_charts(report),
        training_loss=_training_loss(report.recipe),
        epochs=report.history[-MAX_EPOCH_ROWS:],
        training_images=dict(zip(categories, training.tolist(), strict=True)),
        balance=balance_of(training, validation, categories, _test_counts(report)),
        data_sets=[report.training, report.validation]
        + ([report.test_images] if report.test_images else []),
        absent={
            report.training.port: without_images(training, categories),
            report.validation.port: without_images(report.evaluation.per_class.support, categories),
        },
        unreadable_images=report.unreadable_images[:MAX_UNREADABLE_IMAGES],
        parameters={display_name(name): value for name, value in asdict(report.config).items()},
        recipe={
            name.replace("_", " ").capitalize(): _plain(value)
            for name, value in asdict(report.recipe).items()
        },
    )


def _training_loss(recipe: DecidedRecipe) -> str:
    """Return what makes the training loss another function than the validation loss, in words."""
    differences = {
        "label smoothing": recipe.label_smoothing,
        "CutMix": recipe.cutmix,
        "class balancing": recipe.balance_classes,
    }
    return " and ".join(name for name, value in differences.items() if value)


def _plain(value: object) -> str:
    """Return a value of the recipe as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(f"{number:g}" for number in value)
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _test_counts(report: Report) -> np.ndarray | None:
    """Return (C,), int64: the test images of each category; None without a test."""
    if report.test_images is None:
        return None
    return report.test_images.with_categories(report.spec.categories).class_counts()


def balance_of(
    training: np.ndarray,
    validation: np.ndarray,
    categories: Sequence[str],
    test: np.ndarray | None = None,
) -> dict[str, Any]:
    """Return how the images are distributed over the categories, from the counts (C,) of each."""
    order = np.argsort(-training, kind="stable")
    of_parts = [training, validation] if test is None else [training, validation, test]
    rows = [
        (categories[index], *(int(counts[index]) for counts in of_parts))
        for index in order.tolist()
    ]
    largest = int(training.max())
    smallest = int(training[training > 0].min(initial=largest))  # of those with training images
    balance: dict[str, Any] = {
        "largest": largest,
        "smallest": smallest,
        "has_test": test is not None,
        "most": max(largest, int(validation.max()), 1),  # of a category in either dataset
    }
    if len(rows) <= MAX_BALANCE:
        return balance | {"rows": rows, "last_rows": [], "rest": 0, "profile": None}
    ranks = range(1, len(rows) + 1)
    counts = {"training images": training[order].tolist()}
    return balance | {
        "rows": rows[:MAX_ENDS],
        "last_rows": rows[-MAX_ENDS:],
        "rest": len(rows) - 2 * MAX_ENDS,
        "profile": line_chart("Images per category", ranks, counts, x_name="rank"),
    }


def _notes(report: Report) -> Iterator[str]:
    """Yield remarks on the metrics, as sentences without file or category names."""
    if report.look_alikes:
        yield report.look_alikes
    if report.about_suspects:
        yield report.about_suspects
    if report.stopped:
        yield report.stopped
    elif _is_still_falling(report) and report.evaluation.accuracy < 1:
        more_epochs = assignment("epochs", 3 * len(report.history))
        yield (
            "The best epoch is the last, and the validation loss was still falling: more epochs may"
            f" give a better model, for example {more_epochs}."
        )
    yield from _notes_on_losses(report)
    if report.evaluation.quality < GOOD:
        yield from report.advice
    yield from _notes_on_images(report)


def _is_still_falling(report: Report) -> bool:
    num_epochs = len(report.history)
    if num_epochs < 2 or report.best_epoch != num_epochs:
        return False
    return report.history[-1]["Valid loss"] < 0.99 * report.history[-2]["Valid loss"]


def _notes_on_losses(report: Report) -> Iterator[str]:
    if report.rollbacks:
        yield (
            f"The loss was not finite {counted(report.rollbacks, 'time', 'times')}: training"
            " rolled back and halved the learning rate. A lower"
            f" {quoted('learning_rate')} avoids this."
        )
    num_epochs = len(report.history)
    num_infinite = sum(not math.isfinite(record["Valid loss"]) for record in report.history)
    if num_infinite:
        yield f"The validation loss was not finite in {num_infinite} of {num_epochs} epochs."


def _notes_on_images(report: Report) -> Iterator[str]:
    best = report.history[report.best_epoch - 1] if report.best_epoch else None
    if best is not None and _overfits(best):
        training_accuracy = 1 - best["Train error"]
        validation_accuracy = best["Top 1 accuracy"]
        yield (
            f"The model overfits: in the best epoch its accuracy was {training_accuracy:.0%} on"
            f" the training images, but {validation_accuracy:.0%} on the validation images. More"
            " training images would help most."
        )
    counts = report.validation.class_counts()
    num_few = int((counts < FEW_IMAGES).sum())
    if num_few:
        verb = "has" if num_few == 1 else "have"
        pronoun = "its" if num_few == 1 else "their"
        yield (
            f"{num_few:,} of {len(counts):,} categories {verb} fewer than {FEW_IMAGES} validation"
            f" images: {pronoun} metrics are noisy."
        )


def _overfits(epoch: Mapping[str, float]) -> bool:
    """Return whether an epoch was much better on the training images."""
    gap = 1 - epoch["Train error"] - epoch["Top 1 accuracy"]
    return gap >= LARGE_GAP


def _charts(report: Report) -> list[Chart]:
    if not report.history:
        return []

    def values(key: str) -> list[float]:
        return [record[key] for record in report.history]

    further = "Mean average precision"
    charts = {
        "Loss": {"validation": values("Valid loss"), "training": values("Train loss")},
        "Accuracy": {
            "validation": values("Top 1 accuracy"),
            "training": [1 - error for error in values("Train error")],
        },
        **({further: {"validation": values(further)}} if further in report.history[0] else {}),
        "Learning rate": {"at the end of the epoch": values("Learning rate")},
        "Images per second": {"in training": values("Train images per second")},
    }
    epochs = [int(epoch) for epoch in values("epoch")]
    return [
        line_chart(
            title, epochs, series, is_percent=title in ("Accuracy", further), mark=report.best_epoch
        )
        for title, series in charts.items()
    ]
