"""`watch`: whether a model still sees what it was validated on, and how accurate it is today."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.errors import InvalidDatasetError, ParameterError
from train_pytorch_model.formats.histograms import Histograms, read_histograms
from train_pytorch_model.formats.model_directory import ModelDirectory
from train_pytorch_model.formats.outputs import writing_directory
from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.replacing import WATCHED
from train_pytorch_model.formats.seen_images import (
    CONFIDENCE,
    FILE_NAME,
    LABEL,
    SeenImages,
    SeenReader,
)
from train_pytorch_model.formats.spreadsheet_cells import shown_rows
from train_pytorch_model.formats.writing import write_csv, write_json
from train_pytorch_model.image_classifier.predictions import ASPECT_RATIO, ENERGY, PIXELS
from train_pytorch_model.inputs.refuse_lists import refuse_lists
from train_pytorch_model.quality.drift import (
    FALSE_ALARMS,
    MIN_IMAGES,
    Change,
    Drift,
    compare,
)
from train_pytorch_model.tracking.numbers import log_numbers

if TYPE_CHECKING:
    import pandas as pd

SCORES = "Scores"
NUMBERS = "watch.json"
LOOK_FIRST = "look_first.csv"
COLUMNS = (FILE_NAME, LABEL, CONFIDENCE, ENERGY)  # of the images to look at
WIDE = 0.2  # an interval that says little
LARGE = 100  # numbers from here on are written in whole numbers
UNMEASURED = (
    "It is probably too high: by how much confidences are, where images have changed, was not"
    " measured in the training of this model, which was very short, short of memory, or of an"
    " earlier version."
)
ADVICE = "To know it better, label a few dozen of the images and `evaluate`."
_NAMES = {PIXELS: "size in pixels", ASPECT_RATIO: "aspect ratio"}


@dataclass(frozen=True, repr=False)
class Watched:
    """What `watch` says about images."""

    drift: Drift
    look_first: Sequence[tuple[str, str, float, float]]
    """(file, predicted category, confidence, energy), those most unlike the others first."""

    @property
    def is_like(self) -> bool:
        """Return whether the images are like the validation images, for all that is known.

        Of too few images nothing is; the sentences say so.
        """
        return self.drift.is_like

    @property
    def accuracy(self) -> float:
        """Return the estimated accuracy on these images, in [0, 1]."""
        return self.drift.accuracy

    @property
    def accuracy_interval(self) -> tuple[float, float]:
        """Return between which values it is, in 95 % of such estimates."""
        return self.drift.accuracy_interval

    @property
    def images(self) -> "pd.DataFrame":
        """Return the images to look at, those most unlike the others first."""
        import pandas as pd

        return pd.DataFrame(self.look_first, columns=list(COLUMNS))

    def __repr__(self) -> str:
        return "\n".join(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """Return the answer, in sentences."""
        return [_verdict(self.drift), *_accuracy(self.drift)]

    @property
    def numbers(self) -> dict[str, float]:
        """Return what is logged to MLflow, by the names of the metrics."""
        drift = self.drift
        lowest, highest = drift.accuracy_interval
        numbers = {
            "Watched images": drift.images,
            "Like the validation images": drift.is_like if drift.is_enough else math.nan,
            "Estimated accuracy": drift.accuracy,
            "Estimated accuracy, lowest": lowest,
            "Estimated accuracy, highest": highest,
            "Validation accuracy": drift.accuracy_before,
        }
        numbers |= {f"p value of {change.feature}": change.p_value for change in drift.changes}
        # MLflow takes no commas, and no NaN is a number.
        named = {name.replace(",", ""): float(value) for name, value in numbers.items()}
        return {name: value for name, value in named.items() if math.isfinite(value)}


def _read(tables: "Sequence[Path | pd.DataFrame]", categories: Sequence[str]) -> SeenImages:
    if not tables:
        raise InvalidDatasetError(SCORES, "none are given.")
    reader = SeenReader(categories)
    for table in tables:
        try:
            if isinstance(table, Path):
                reader.read(table)
            else:
                reader.add(table)
        except MalformedFileError as error:
            title = f'{SCORES} "{table}"' if isinstance(table, Path) else "The DataFrame"
            raise InvalidDatasetError(title, str(error)) from error
    if not reader.seen.images:
        raise InvalidDatasetError(SCORES, "they hold no image that could be read.")
    return reader.seen


def watch(model: ModelDirectory, tables: "Sequence[Path | pd.DataFrame]") -> Watched:
    """Compare what a model saw with its validation images, and log the numbers to MLflow.

    Tables are scored datasets, and answers of a served model. Raises `ParameterError` for a model
    that answers with any number of categories, `InvalidModelDirectoryError` for one that has no
    histograms, and `InvalidDatasetError` for tables that it has not answered.
    """
    histograms = _histograms(model)
    seen = _read(tables, model.categories)
    watched = Watched(_compare(histograms, seen), _look_first(seen, model.categories))
    log_numbers("watch", watched.numbers)
    return watched


def write_watched(watched: Watched, output: Path, overwrite: bool = False) -> None:
    """Write the numbers, and the images to look at. Raises `OutputDirectoryError`."""
    with writing_directory(output, {"type": WATCHED}, "output", overwrite=overwrite) as root:
        document = {"sentences": watched.sentences, "numbers": watched.numbers}
        write_json(root / NUMBERS, document)
        rows = [(name, label, f"{p:.6f}", f"{e:.6f}") for name, label, p, e in watched.look_first]
        write_csv(root / LOOK_FIRST, shown_rows([COLUMNS, *rows]))


def _histograms(model: ModelDirectory) -> Histograms:
    refuse_lists(
        model.answers,
        ParameterError(
            "`watch` is for models that answer each image with one category, and that of"
            f" {model.root} answers with any number of them: measure it with `evaluate`, on"
            " labelled images."
        ),
    )
    try:
        return read_histograms(model.root)
    except MalformedFileError as error:
        raise model.error(
            str(error), "Train the model again: this version keeps what its images were like."
        ) from error


def _compare(histograms: Histograms, seen: SeenImages) -> Drift:
    is_known = np.isfinite(seen.confidences)
    drift = compare(histograms, seen.features, seen.confidences[is_known], seen.predicted)
    if seen.images > len(seen.predicted):
        return replace(drift, images=seen.images)
    return drift


def _look_first(seen: SeenImages, categories: Sequence[str]) -> list[tuple[str, str, float, float]]:
    """Return the images with the highest energies."""
    labels = [*categories, ""]  # the last for what is no category
    return [
        (image.name, labels[image.predicted], image.confidence, image.energy)
        for image in seen.unlike
    ]


def _verdict(drift: Drift) -> str:
    """Return whether the images are like the validation images, and what has changed."""
    images = counted(drift.images, "image", "images")
    if not drift.is_enough:
        before = counted(drift.images_before, "validation image", "validation images")
        return (
            f"{images} cannot be compared with {before}: at least {MIN_IMAGES} of both are needed."
        )
    per = round(1 / FALSE_ALARMS)
    alarms = f"Of {per:,} checks of such images, at most one raises a false alarm."
    if drift.is_like:
        return f"{images}: like the validation images. {alarms}"
    changes = ", ".join(map(_describe, drift.changes))
    return f"{images}: not like the validation images. What changed: {changes}. {alarms}"


def _describe(change: Change) -> str:
    """Return what has changed, from which median to which."""
    name = _NAMES.get(change.feature, change.feature)
    if math.isnan(change.before):
        return f"which {name} are predicted how often"
    return f"{name} (median {_in_digits(change.now)}, was {_in_digits(change.before)})"


def _in_digits(value: float) -> str:
    """Return a number of any size without an exponent, which not everybody reads."""
    return f"{value:,.0f}" if abs(value) >= LARGE else f"{value:.3g}"


def _accuracy(drift: Drift) -> list[str]:
    """Return a sentence about the accuracy, if there are confidences."""
    if math.isnan(drift.accuracy):
        return []
    lowest, highest = drift.accuracy_interval
    estimate = (
        f"Estimated accuracy, without labels: {drift.accuracy:.1%} ({lowest:.1%} to"
        f" {highest:.1%}); of the validation images it was {drift.accuracy_before:.1%}. The"
        " estimate holds for images of the model's categories."
    )
    if drift.is_like:
        return [estimate]
    if not drift.is_measured:
        return [f"{estimate} {UNMEASURED} {ADVICE}"]
    return [f"{estimate} {ADVICE}" if highest - lowest > WIDE else estimate]
