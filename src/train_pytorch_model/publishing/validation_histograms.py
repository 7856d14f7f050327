"""What the validation images of a published model were like, for `watch`."""

from collections.abc import Mapping

import numpy as np
import torch
from PIL import Image

from train_pytorch_model.evaluation.metrics import Outcomes
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.formats.histograms import Histograms
from train_pytorch_model.formats.listing import evenly_spaced
from train_pytorch_model.formats.seen_images import CONFIDENCE
from train_pytorch_model.image_classifier.decoding import UnreadableImageError
from train_pytorch_model.image_classifier.pixels import read_pixels
from train_pytorch_model.image_classifier.predictions import (
    ASPECT_RATIO,
    BRIGHTNESS,
    ENERGY,
    PIXELS,
)
from train_pytorch_model.image_classifier.seen import brightness_of, shape_of
from train_pytorch_model.image_classifier.spec import ClassifierSpec, Framing
from train_pytorch_model.machine.cores import in_threads
from train_pytorch_model.quality.drift import histograms_of

MAX_DECODED = 400  # evenly spaced, to know their brightness and size: seconds of large photographs


def validation_histograms(
    evaluated: EvaluatedImages, energies: np.ndarray, spec: ClassifierSpec
) -> Histograms:
    """Return the histograms of N > 0 images, with their energies (N,)."""
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes), "images of several categories have no energies"
    return histograms_of(
        {
            ENERGY: energies,
            CONFIDENCE: outcomes.confidences,
            **_look_at(evaluated, spec.framing),
        },
        outcomes.confidences,
        outcomes.predicted,
        outcomes.is_hit,
        len(spec.categories),
    )


def _look_at(evaluated: EvaluatedImages, framing: Framing) -> Mapping[str, np.ndarray]:
    """Return brightness, aspect ratio and size of a sample of the images."""

    def look_at(index: int) -> tuple[float, float, float]:
        path = evaluated.images.path(index)
        try:
            pixels = read_pixels(path, framing.short_side, framing.colours)
        except UnreadableImageError:  # since it was validated
            return np.nan, np.nan, np.nan
        frame = torch.tensor(framing.apply(Image.fromarray(pixels)))
        return float(brightness_of(frame[None])[0]), *shape_of(path)

    sample = evaluated.indices[evenly_spaced(len(evaluated.indices), MAX_DECODED)]
    rows = np.array(list(in_threads(look_at, sample.tolist())))
    return dict(zip((BRIGHTNESS, ASPECT_RATIO, PIXELS), rows.T, strict=True))
