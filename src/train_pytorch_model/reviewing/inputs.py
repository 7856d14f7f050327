"""What is reviewed, and what the model says of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from train_pytorch_model.datasets.correcting import Corrections
from train_pytorch_model.datasets.reviewed_images import ReviewedImages
from train_pytorch_model.formats.reading import sha256_of
from train_pytorch_model.inputs.scoring import ScoringInputs


@dataclass(frozen=True)
class ReviewInputs:
    """What is reviewed."""

    scoring: ScoringInputs  # all readable images, without categories
    reviewed: ReviewedImages  # the same and unreadable ones, with their categories
    earlier: Corrections | None  # decisions that were made before
    size: int  # images on the page, at most
    folder: Path  # of the page
    command: str  # which trains with the decisions


@dataclass(frozen=True)
class Predicted:
    """What the model says of N images, and what it sees in them."""

    indices: np.ndarray  # (N,), int64: of the readable images
    names: Sequence[str]  # N, of their files
    probabilities: np.ndarray  # (N, C), float32
    features: np.ndarray  # (N, F), float32
    energies: np.ndarray  # (N,)
    hashes: np.ndarray  # (N, 16), uint8


def digest_of(path: Path) -> str:
    """Return the sha256 of an image; empty if it was deleted since it was predicted."""
    try:
        return sha256_of(path)
    except OSError:
        return ""
