"""The trained directory as an MLflow model: MLflow calls `_load_pyfunc` in the directory's copy of this code.

Input: a column `image`, each value a base64-encoded image file. Output: the columns of a scored dataset,
`Scored Probabilities_<category>` for each category and `Scored Labels`.
"""

import base64
import io
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image

from .classifier import ImageClassifier
from .decoding import UnreadableImageError
from .pixels import read_pixels
from .scored_columns import IMAGE_COLUMN, LABEL_COLUMN, PROBABILITY_PREFIX
from .spec import ClassifierSpec


class ServedClassifier:
    """The Python model that MLflow calls."""

    def __init__(self, classifier: ImageClassifier) -> None:
        self._classifier = classifier

    def predict(self, model_input: pd.DataFrame) -> pd.DataFrame:
        """Predictions, row by row. Raises `ValueError`, naming the row, for an invalid image."""
        images = [self._image(row, text) for row, text in enumerate(model_input[IMAGE_COLUMN])]
        probabilities = self._classifier.classify(images)
        categories = self._classifier.spec.categories
        columns = [PROBABILITY_PREFIX + name for name in categories]
        scored = pd.DataFrame(probabilities, columns=columns)
        scored[LABEL_COLUMN] = [categories[index] for index in probabilities.argmax(axis=1)]
        return scored

    def _image(self, row: int, text: str) -> Image.Image:
        try:
            file = io.BytesIO(base64.b64decode(text, validate=True))
            return Image.fromarray(read_pixels(file, self._classifier.spec.framing.short_side))
        except (ValueError, TypeError) as error:
            raise ValueError(f"row {row}: not a base64-encoded image file: {error}") from error
        except UnreadableImageError as error:
            raise ValueError(f"row {row}: the image cannot be read: {error}") from error


def _load_pyfunc(path: str, model_config: dict[str, Any]) -> ServedClassifier:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    spec = ClassifierSpec.from_mapping(model_config)
    return ServedClassifier(ImageClassifier.load(spec, Path(path), device))
