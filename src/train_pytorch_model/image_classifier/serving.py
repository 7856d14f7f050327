"""The trained directory as an MLflow model.

MLflow calls `_load_pyfunc` in the directory's copy of this code.

Input: a column `image`, each value an image file, base64-encoded or as bytes, and optionally a
column `name`. Output, row by row: the name, if names were given; the columns of a scored dataset,
`Scored Probabilities_<category>` for each category and `Scored Labels`; `error`, why an image has
neither; with the parameter `watch`, the columns of `seen`. Where images have any number of
categories, the label is a list.
"""

import base64
import io
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from . import predictions
from .classifier import Classified, ImageClassifier, best_device
from .decoding import UnreadableImageError
from .pixels import read_pixels
from .seen import shape_of
from .spec import ClassifierSpec, Framing

MAX_ROWS = 100_000
MAX_FILE_BYTES = 64 << 20
_URL_SAFE = str.maketrans("-_", "+/")
_AZURE_RESPONSE = "azureml_inference_server_http.api.aml_response"


class ServedClassifier:
    """The Python model that MLflow calls."""

    def __init__(self, classifier: ImageClassifier, folder: Path) -> None:
        """`folder` is the model directory."""
        self._classifier = classifier
        self._folder = folder

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> Any:
        """Return predictions, row by row; an image that cannot be read has an `error` instead.

        With a `known_fraction` below 1 in `params`, the label of an image that is less like the
        training images than that fraction of the validation images is `unknown`. With `watch`, the
        table has what the model saw in the images, too.

        If no image can be read, the request is refused: see `_refuse`. Memory is bounded by that of
        a batch.
        """
        if predictions.IMAGE_COLUMN not in model_input:
            return _refuse(
                f"There is no column `{predictions.IMAGE_COLUMN}`: expected a table with"
                " base64-encoded image files in a column of that name, and optionally their names"
                f" in a column `{predictions.NAME_COLUMN}`."
            )
        spec = self._classifier.spec
        values = list(model_input[predictions.IMAGE_COLUMN])
        if len(values) > MAX_ROWS:
            return _refuse(
                f"{len(values):,} images at once are more than {MAX_ROWS:,}: divide the table."
            )
        try:
            fraction = float((params or {}).get(predictions.KNOWN_FRACTION, 1.0))
            threshold = predictions.read_threshold(self._folder, fraction)
            if fraction < 1:
                predictions.check_unknown_label(spec.categories)
        except (predictions.UnknownError, ValueError, TypeError) as error:
            return _refuse(
                f"There is no answer with the parameter `{predictions.KNOWN_FRACTION}`: {error}"
            )
        images = (_read(value, spec.framing) for value in values)
        is_watched = bool((params or {}).get(predictions.WATCH))
        classified = self._classifier.classify(images, is_watched)
        errors = classified.errors
        if values and all(errors):
            return _refuse(
                f"None of the images can be read ({len(values):,} given). The first: {errors[0]}."
            )
        names = model_input.get(predictions.NAME_COLUMN)
        table = _table(classified.probabilities, spec, errors, names)
        is_unknown = classified.energies > threshold
        table.loc[is_unknown, predictions.LABEL_COLUMN] = predictions.UNKNOWN_LABEL
        if is_watched:
            _add_seen(table, classified, values)
        return table


def _add_seen(table: pd.DataFrame, classified: Classified, values: Sequence[object]) -> None:
    """Add what was seen in the images, null for what is none."""
    shapes = np.full((len(values), 2), np.nan)
    for row, value in enumerate(values):
        if classified.errors[row] is None:
            shapes[row] = shape_of(io.BytesIO(_file_of(value)))
    columns = (classified.energies, classified.brightness, *shapes.T)
    for name, numbers in zip(predictions.SEEN, columns, strict=True):
        table[name] = pd.Series(numbers).astype(object).where(np.isfinite(numbers), None)


def _read(value: object, framing: Framing) -> Image.Image | str:
    """Return the image in a value, or the reason why it cannot be read."""
    try:
        file = io.BytesIO(_file_of(value))
        return Image.fromarray(read_pixels(file, framing.short_side, framing.colours))
    except UnreadableImageError as error:
        return str(error)


def _file_of(value: object) -> bytes:
    """Return a value's file, which is bytes, or base64 in any form.

    Raises `UnreadableImageError`.
    """
    if pd.api.types.is_scalar(value) and pd.isna(value):
        raise UnreadableImageError("there is no image: the value is null")
    file = _decode_base64(value) if isinstance(value, str) else value
    if not isinstance(file, bytes):
        raise UnreadableImageError(
            f"not a base64-encoded image file, but of type {type(value).__name__}"
        )
    if len(file) > MAX_FILE_BYTES:
        raise UnreadableImageError(
            f"a file of {len(file):,} bytes is larger than {MAX_FILE_BYTES:,}"
        )
    return file


def _decode_base64(value: str) -> bytes:
    """Return the bytes of base64 or of a data URL. Raises `UnreadableImageError`."""
    text = value.strip()
    if text.startswith("data:"):
        kind, _, text = text.partition(",")
        if not kind.endswith(";base64"):
            raise UnreadableImageError("a data URL that is not base64-encoded")
    text = "".join(text.split()).rstrip("=").translate(_URL_SAFE)
    padding = "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text + padding, validate=True)
    except ValueError as error:
        raise UnreadableImageError(f"not a base64-encoded image file: {error}") from error


def _table(
    probabilities: np.ndarray,
    spec: ClassifierSpec,
    errors: Sequence[str | None],
    names: pd.Series | None,
) -> pd.DataFrame:
    """Return the predictions, row by row.

    Rows with an error have neither probabilities nor a label, but None, JSON's null.
    """
    answers = spec.answers.labels(probabilities, spec.categories)
    labels = [
        label if error is None else None for error, label in zip(errors, answers, strict=True)
    ]
    if None in labels:
        probabilities = probabilities.astype(object)
        probabilities[[label is None for label in labels]] = None
    columns = [predictions.PROBABILITY_PREFIX + name for name in spec.categories]
    scored = pd.DataFrame(probabilities, columns=columns)
    scored[predictions.LABEL_COLUMN] = pd.Series(labels, dtype=object)
    scored[predictions.ERROR_COLUMN] = pd.Series(errors, dtype=object)
    if names is not None:
        sent = [_as_sent(name) for name in names.astype(object).mask(names.isna(), None)]
        scored.insert(0, predictions.NAME_COLUMN, pd.Series(sent, dtype=object))
    return scored


def _as_sent(name: object) -> object:
    """Return a name as it was sent, and as JSON can hold it.

    Beside a name that is missing, pandas makes floats of integers.
    """
    if not isinstance(name, float):
        return name
    if math.isnan(name):
        return None
    if math.isinf(name):
        return str(name)
    return int(name) if name.is_integer() else name


def _refuse(reason: str) -> Any:
    """Answer with status 400 and the reason.

    MLflow's server gets an exception, Azure's a response.
    """
    azure = sys.modules.get(_AZURE_RESPONSE)
    if azure:
        return azure.AMLResponse({"message": reason}, 400, json_str=True)
    from mlflow.exceptions import MlflowException

    raise MlflowException.invalid_parameter_value(reason)


def _load_pyfunc(path: str, model_config: dict[str, Any]) -> ServedClassifier:
    spec = ClassifierSpec.from_mapping(model_config)
    classifier = ImageClassifier.load(spec, Path(path), best_device())
    return ServedClassifier(classifier, Path(path).parent)
