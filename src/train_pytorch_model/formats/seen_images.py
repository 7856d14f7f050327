"""`seen.parquet` of a scored dataset: what a model saw in each image, see `image_classifier.seen`.

    file_name       string, as in scores.csv
    label           string, the predicted category
    confidence      float, its probability
    energy          float, how unlike the training images the image is
    brightness      float, 0 to 1
    aspect_ratio    float, width by height; null for images beyond a sample
    pixels          float, of the file's image; null for the same

The tables that a served model answers with its parameter `watch` have the same columns, and are
read as well: Parquet, CSV, or a JSON array of objects, also as MLflow's server answers it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa

from train_pytorch_model.formats.reading import (
    MAX_JSON_BYTES,
    NOT_JSON,
    MalformedFileError,
    one_line,
    read_bounded,
)
from train_pytorch_model.image_classifier.predictions import (
    ASPECT_RATIO,
    BRIGHTNESS,
    ENERGY,
    LABEL_COLUMN,
    PIXELS,
    PROBABILITY_PREFIX,
)

if TYPE_CHECKING:
    import pandas as pd

SEEN_IMAGES = "seen.parquet"
FILE_NAME = "file_name"
LABEL = "label"
CONFIDENCE = "confidence"
FEATURES = (ENERGY, CONFIDENCE, BRIGHTNESS, ASPECT_RATIO, PIXELS)
_NAMES = (FILE_NAME, "name", "image")
_LABELS = (LABEL, LABEL_COLUMN)
_CONFIDENCES = (CONFIDENCE, "probability")
UNKNOWN = -1  # the class index of a label that is no category, such as `unknown`


_Rows = list[dict[str, Any]]


class _MlflowAnswer(msgspec.Struct):
    """What MLflow's server answers."""

    predictions: _Rows


@dataclass(frozen=True)
class SeenImages:
    """What a model saw in N images."""

    names: Sequence[str]
    predicted: np.ndarray  # (N,), int64: class indices, or `UNKNOWN`
    features: dict[str, np.ndarray]  # of `FEATURES`: (N,), float64, NaN if unknown

    @property
    def confidences(self) -> np.ndarray:
        """Return the probabilities of the predicted categories: (N,), float64."""
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


def read_seen_images(path: Path, categories: Sequence[str]) -> SeenImages:
    """Read a scored dataset, or a table of answers. Raises `MalformedFileError`."""
    if path.is_dir():
        path = path / SEEN_IMAGES
        if not path.is_file():
            raise MalformedFileError(
                f"it has no {SEEN_IMAGES}, which `score` writes: score the images once more."
            )
    if not path.is_file():
        raise MalformedFileError("there is no such file or directory.")
    return seen_images_of(_read_table(path), categories)


def _read_table(path: Path) -> "pd.DataFrame":
    import pandas as pd  # here, because it takes half a second

    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return pd.read_parquet(path)
        if suffix == ".csv":
            types = dict.fromkeys((*_NAMES, *_LABELS), str)  # such as 01
            return pd.read_csv(path, keep_default_na=False, na_values=[""], dtype=types)
        if suffix == ".json":
            data = read_bounded(path, MAX_JSON_BYTES)
            answer = msgspec.json.decode(data, type=_Rows | _MlflowAnswer)
            return pd.DataFrame(answer.predictions if isinstance(answer, _MlflowAnswer) else answer)
    except MalformedFileError:
        raise
    except (*NOT_JSON, OSError, ValueError, ImportError) as error:  # pandas and Arrow raise these
        raise MalformedFileError(f"{path.name} cannot be read: {one_line(error)}.") from error
    raise MalformedFileError("it is neither a directory nor a table: .parquet, .csv or .json.")


def seen_images_of(table: "pd.DataFrame", categories: Sequence[str]) -> SeenImages:
    """Return what a table of answers says, without images that cannot be read.

    Raises `MalformedFileError` for one without the columns that are needed.
    """
    label = _first_of(_LABELS, table)
    if label is None or ENERGY not in table:
        raise MalformedFileError(
            f"it has no column {ENERGY if label else LABEL!r}: `score` writes {SEEN_IMAGES}, and a"
            " served model answers such tables with its parameter `watch`."
        )
    table = table[table[label].notna()]
    index_of = {name: index for index, name in enumerate(categories)}
    predicted = [index_of.get(str(name), UNKNOWN) for name in table[label]]
    features = {name: _numbers(table, name) for name in FEATURES}
    if CONFIDENCE not in table:
        features[CONFIDENCE] = _confidences(table)
    name = _first_of(_NAMES, table)
    names = [str(number) for number in table.index] if name is None else map(str, table[name])
    return SeenImages(list(names), np.array(predicted, np.int64), features)


def _first_of(names: Sequence[str], table: "pd.DataFrame") -> str | None:
    return next((name for name in names if name in table), None)


def _numbers(table: "pd.DataFrame", name: str) -> np.ndarray:
    """Return a column as numbers (N,), NaN where it has none, or is missing."""
    import pandas as pd

    if name not in table:
        return np.full(len(table), np.nan)
    column: Any = pd.to_numeric(table[name], errors="coerce")
    numbers: np.ndarray = column.to_numpy(np.float64, na_value=np.nan)
    return numbers


def _confidences(table: "pd.DataFrame") -> np.ndarray:
    """Return the largest probability of each row (N,). Raises `MalformedFileError`."""
    name = _first_of(_CONFIDENCES, table)
    if name is not None:
        return _numbers(table, name)
    columns = [column for column in table if str(column).startswith(PROBABILITY_PREFIX)]
    if not columns:
        raise MalformedFileError("it has no column with probabilities.")
    largest: np.ndarray = np.max([_numbers(table, column) for column in columns], axis=0)
    return largest


def join_seen(parts: Sequence[SeenImages]) -> SeenImages:
    """Return the images of several tables as one, in their order."""
    return SeenImages(
        names=[name for part in parts for name in part.names],
        predicted=np.concatenate([part.predicted for part in parts]),
        features={
            name: np.concatenate([part.features[name] for part in parts]) for name in FEATURES
        },
    )
