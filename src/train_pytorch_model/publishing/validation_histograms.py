"""What the validation images of a published model were like, for `watch`."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import msgspec
import numpy as np
import torch
from PIL import Image
from torch import Tensor

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
from train_pytorch_model.image_classifier.unidentified import File
from train_pytorch_model.machine.cores import in_threads
from train_pytorch_model.publishing.falls import FallsMeter, Predict
from train_pytorch_model.quality.drift import histograms_of

MAX_DECODED = 400  # evenly spaced, to know their brightness and size: seconds of large photographs
IMAGES_AT_ONCE = 16


@dataclass(frozen=True)
class Trial:
    """How validation images are tried when they are degraded."""

    predict: Predict
    images_of_each: int  # of each degradation


def validation_histograms(
    evaluated: EvaluatedImages, energies: np.ndarray, spec: ClassifierSpec, trial: Trial | None
) -> Histograms:
    """Return the histograms of N > 0 images, with their energies (N,), and what a trial says."""
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes), "images of several categories have no energies"
    sample = evenly_spaced(len(evaluated.indices), MAX_DECODED)
    meter = None
    if trial is not None:
        meter = FallsMeter(trial.predict, energies, len(sample), trial.images_of_each)
    looks = _look_at(evaluated, energies, sample, spec.framing, meter)
    histograms = histograms_of(
        {ENERGY: energies, CONFIDENCE: outcomes.confidences, **looks},
        outcomes.confidences,
        outcomes.predicted,
        outcomes.is_hit,
        len(spec.categories),
    )
    return msgspec.structs.replace(histograms, falls=meter.falls if meter else None)


def _look_at(
    evaluated: EvaluatedImages,
    energies: np.ndarray,
    sample: np.ndarray,
    framing: Framing,
    meter: FallsMeter | None,
) -> Mapping[str, np.ndarray]:
    """Return brightness, aspect ratio and size of the images at these rows, and show them a meter.

    A few frames are in memory at a time.
    """
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, Outcomes)
    looks = []
    for start in range(0, len(sample), IMAGES_AT_ONCE):
        rows = sample[start : start + IMAGES_AT_ONCE]
        paths = [evaluated.images.path(index) for index in evaluated.indices[rows].tolist()]
        frames = list(in_threads(partial(_frame, framing=framing), paths, at_once=1))
        read = [number for number, frame in enumerate(frames) if frame is not None]
        if read and meter is not None:
            readable = torch.stack([frame for frame in frames if frame is not None])
            meter.add(readable, outcomes.select(rows[read]), energies[rows[read]])
        looks += [_look(path, frame) for path, frame in zip(paths, frames, strict=True)]
    return dict(zip((BRIGHTNESS, ASPECT_RATIO, PIXELS), np.array(looks).T, strict=True))


def _frame(path: File, framing: Framing) -> Tensor | None:
    """Return (H, W, 3), uint8; None if the image cannot be read any more."""
    try:
        pixels = read_pixels(path, framing.short_side, framing.colours)
    except UnreadableImageError:
        return None
    return torch.tensor(framing.apply(Image.fromarray(pixels)))


def _look(path: File, frame: Tensor | None) -> tuple[float, float, float]:
    if frame is None:
        return np.nan, np.nan, np.nan
    return float(brightness_of(frame[None])[0]), *shape_of(path)
