"""`seen.parquet` of a scored dataset: what a model saw in each image, see `image_classifier.seen`.

    file_name       string, as in scores.csv
    label           string, the predicted category
    confidence      float, its probability
    energy          float, how unlike the training images the image is
    brightness      float, 0 to 1
    aspect_ratio    float, width by height; null for images beyond a sample
    pixels          float, of the file's image; null for the same

The tables that a served model answers with its parameter `watch` have the same columns, and are
read as well. Of any number of images, memory holds as many as a comparison needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.formats.seen_tables import read_pieces
from train_pytorch_model.image_classifier.predictions import (
    ASPECT_RATIO,
    BRIGHTNESS,
    ENERGY,
    LABEL_COLUMN,
    PIXELS,
    PROBABILITY_PREFIX,
    UNKNOWN_LABEL,
)

if TYPE_CHECKING:
    import pandas as pd

SEEN_IMAGES = "seen.parquet"
FILE_NAME = "file_name"
LABEL = "label"
CONFIDENCE = "confidence"
FEATURES = (ENERGY, CONFIDENCE, BRIGHTNESS, ASPECT_RATIO, PIXELS)
MAX_COMPARED = 1 << 20  # images; of more, evenly spaced ones say the same
MAX_UNLIKE = 1000
MAX_NAME = 4096  # characters
MAX_QUOTED = 60
_NAMES = (FILE_NAME, "name", "image")
_LABELS = (LABEL, LABEL_COLUMN)
_CONFIDENCES = (CONFIDENCE, "probability")
UNKNOWN = -1  # the class index of a label that is no category, such as `unknown`


@dataclass(frozen=True)
class UnlikeImage:
    """One of the images with the highest energies."""

    name: str
    predicted: int  # class index, or `UNKNOWN`
    confidence: float
    energy: float


@dataclass(frozen=True)
class SeenImages:
    """What a model saw in N images, of which M are compared."""

    images: int  # N
    predicted: np.ndarray  # (M,), int64: class indices, or `UNKNOWN`
    features: dict[str, np.ndarray]  # of `FEATURES`: (M,), float64, NaN if unknown
    unlike: Sequence[UnlikeImage]  # of the N, those most unlike the others first

    @property
    def confidences(self) -> np.ndarray:
        """Return the probabilities of the predicted categories: (M,), float64."""
        return self.features[CONFIDENCE]


def seen_table(
    names: Sequence[str], labels: Sequence[str], features: Mapping[str, np.ndarray]
) -> pa.Table:
    """Return rows of `seen.parquet`; a feature is (B,), float64, NaN if unknown."""
    text = [name.encode(errors="backslashreplace").decode() for name in names]
    columns: dict[str, Any] = {
        FILE_NAME: pa.array(text, pa.string()),
        LABEL: pa.array(list(labels), pa.string()),
    }
    for name in FEATURES:
        columns[name] = pa.array(features[name], pa.float32(), from_pandas=True)
    return pa.table(columns)


class SeenReader:
    """Reads what a model saw in images, one table after the other.

    What could not be read as an image does not count.
    """

    def __init__(self, categories: Sequence[str]) -> None:
        self._index_of = {name: index for index, name in enumerate(categories)}
        self._images = 0
        self._every = 1  # how many images there are to each that is compared
        self._compared = np.empty((0, 1 + len(FEATURES)))  # class index and features
        self._unlike: list[UnlikeImage] = []

    @property
    def seen(self) -> SeenImages:
        """Return what has been read so far."""
        predicted, *features = self._compared.T
        return SeenImages(
            images=self._images,
            predicted=predicted.astype(np.int64),
            features=dict(zip(FEATURES, features, strict=True)),
            unlike=self._unlike,
        )

    def read(self, path: Path) -> None:
        """Read a scored dataset, or a table of answers. Raises `MalformedFileError`."""
        if path.is_dir():
            path = path / SEEN_IMAGES
            if not path.is_file():
                raise MalformedFileError(
                    f"it has no {SEEN_IMAGES}, which `score` writes: score the images once more."
                )
        if not path.is_file():
            raise MalformedFileError("there is no such file or directory.")
        num_rows = 0
        for piece in read_pieces(path, _needed_columns):
            piece.index += num_rows
            num_rows += len(piece)
            self.add(piece)

    def add(self, table: "pd.DataFrame") -> None:
        """Add the rows of a table of answers. Raises `MalformedFileError`."""
        texts, numbers = _needed_columns(table.columns.tolist())
        label, *name = texts
        table = table[table[label].notna()]
        predicted = self._class_indices(table[label])
        features = {feature: _numbers(table, feature) for feature in FEATURES}
        if CONFIDENCE not in numbers:
            probabilities = [each for each in numbers if each not in FEATURES]
            features[CONFIDENCE] = np.max([_numbers(table, each) for each in probabilities], axis=0)
        names = table[name[0]] if name else table.index.to_series()
        self._add_unlike(names, predicted, features)
        self._compare(np.column_stack([predicted, *features.values()]))

    def _class_indices(self, labels: "pd.Series") -> np.ndarray:
        """Return the class indices of labels (N,); each that is different is a text once.

        Raises `MalformedFileError` for labels of another model.
        """
        try:
            codes, different = labels.factorize()
        except TypeError as error:  # lists
            raise MalformedFileError(
                f"its column {labels.name!r} should hold the name of a category for each image:"
                f" {error}."
            ) from error
        texts = [str(label) for label in different]
        for text in texts:
            if text not in self._index_of and text != UNKNOWN_LABEL:
                raise MalformedFileError(
                    f"{text[:MAX_QUOTED]!r} is no category of this model: these are scores of"
                    " another one."
                )
        indices = np.array([self._index_of.get(text, UNKNOWN) for text in texts], np.int64)
        predicted: np.ndarray = indices[codes]
        return predicted

    def _compare(self, rows: np.ndarray) -> None:
        """Add rows to those that are compared; if these become too many, leave out every other."""
        first = -self._images % self._every
        self._compared = np.concatenate([self._compared, rows[first :: self._every]])
        self._images += len(rows)
        while len(self._compared) > MAX_COMPARED:
            self._compared = self._compared[::2].copy()
            self._every *= 2

    def _add_unlike(
        self, names: "pd.Series", predicted: np.ndarray, features: dict[str, np.ndarray]
    ) -> None:
        """Keep the images with the highest energies of these and of those before."""
        energies = np.nan_to_num(features[ENERGY], nan=-np.inf)
        order = np.argsort(-energies, kind="stable")[:MAX_UNLIKE].tolist()
        self._unlike += [
            UnlikeImage(
                name=str(names.iloc[row])[:MAX_NAME],
                predicted=int(predicted[row]),
                confidence=float(features[CONFIDENCE][row]),
                energy=float(energies[row]),
            )
            for row in order
        ]
        self._unlike.sort(key=lambda image: -image.energy)
        del self._unlike[MAX_UNLIKE:]


def _needed_columns(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns of label and name, if there is one; and those with numbers.

    Raises `MalformedFileError` for a table without those that are needed.
    """
    label = _first_of(_LABELS, names)
    if label is None or ENERGY not in names:
        raise MalformedFileError(
            f"it has no column {ENERGY if label else LABEL!r}: `score` writes {SEEN_IMAGES}, and"
            " `model.predict(…, watch=True)` and a served model with the parameter `watch` answer"
            " such tables."
        )
    confidence = _first_of(_CONFIDENCES, names)
    probabilities = [name for name in names if str(name).startswith(PROBABILITY_PREFIX)]
    if confidence is not None:
        probabilities = [confidence]
    if not probabilities:
        raise MalformedFileError("it has no column with probabilities.")
    name = _first_of(_NAMES, names)
    texts = [label] if name is None else [label, name]
    numbers = [name for name in FEATURES if name in names and name != CONFIDENCE]
    needed = [*texts, *numbers, *probabilities]
    twice = next((each for each in needed if names.count(each) > 1), None)
    if twice is not None:
        raise MalformedFileError(f"it has two columns {twice!r}.")
    return texts, [*numbers, *probabilities]


def _first_of(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _numbers(table: "pd.DataFrame", name: str) -> np.ndarray:
    """Return a column as numbers (N,), NaN where it has none, or is missing."""
    import pandas as pd

    if name not in table:
        return np.full(len(table), np.nan)
    column: Any = pd.to_numeric(table[name], errors="coerce")
    numbers: np.ndarray = column.to_numpy(np.float64, na_value=np.nan)
    return numbers
