"""What a prediction holds: the columns of tables of predictions, and the label `unknown`.

An image is unknown if it is unlike those that a model was trained on, so that no category should be
answered. The score is the free energy of its logits, -log(sum(exp(logits))): it is low where the
evidence for any category is strong (Liu et al. 2020, Energy-based Out-of-distribution Detection).
`known.json`, beside the weights, has the scores of the validation images, by which a threshold is
chosen:

    {"energies": [-9.1, …, 2.3]}     their quantiles at 0, 0.5 %, … 100 %
"""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

IMAGE_COLUMN = "image"  # the input of a served model: base64-encoded image files
# Optional input of a served model: what the rows of its output are to be called.
NAME_COLUMN = "name"
PROBABILITY_PREFIX = "Scored Probabilities_"
LABEL_COLUMN = "Scored Labels"
ERROR_COLUMN = "error"  # of a served model: why a row has no label
KNOWN_FRACTION = "known_fraction"  # of validation images; a served model's parameter

WATCH = "watch"  # a served model's parameter: its table has the columns `SEEN`, see `seen`
ENERGY = "energy"
BRIGHTNESS = "brightness"
ASPECT_RATIO = "aspect_ratio"
PIXELS = "pixels"
SEEN = (ENERGY, BRIGHTNESS, ASPECT_RATIO, PIXELS)

KNOWN = "known.json"
UNKNOWN_LABEL = "unknown"
DEFAULT_KNOWN_FRACTION = 0.99
NUM_QUANTILES = 201
MAX_BYTES = 1 << 16


class UnknownError(Exception):
    """There is no threshold; the text says why."""


def energies_of(logits: np.ndarray) -> np.ndarray:
    """Return how unlike training images those with the logits (N, C) are: (N,), float64."""
    largest = logits.max(axis=1)
    exponentials = np.exp(logits - largest[:, None].astype(np.float64))
    energies: np.ndarray = -largest - np.log(exponentials.sum(axis=1))
    return energies


def known_json(energies: np.ndarray) -> str:
    """Return the content of `known.json`, from the energies (N,) of N > 0 validation images."""
    quantiles = np.quantile(energies, np.linspace(0, 1, NUM_QUANTILES))
    return json.dumps({"energies": [round(value, 6) for value in quantiles.tolist()]})


def check_unknown_label(categories: Iterable[str]) -> None:
    """Raise `UnknownError` if a category could not be told from the answer `unknown`."""
    if UNKNOWN_LABEL in categories:
        raise UnknownError(
            f"the model has a category called `{UNKNOWN_LABEL}`, from which that answer could not"
            " be told: give the category another name and train again."
        )


def read_threshold(folder: Path, known_fraction: float) -> float:
    """Return the energy above which an image of this model directory is unknown.

    This fraction of the validation images, in (0, 1], is below; with 1 no image is unknown. Raises
    `UnknownError`.
    """
    if not 0 < known_fraction <= 1:
        raise UnknownError(f"it should be above 0 and at most 1, and is {known_fraction}.")
    if known_fraction == 1:
        return np.inf
    try:
        with (folder / KNOWN).open("rb") as file:
            energies = np.asarray(json.loads(file.read(MAX_BYTES))["energies"], np.float64)
        if energies.shape != (NUM_QUANTILES,) or not np.isfinite(energies).all():
            raise ValueError(f"{NUM_QUANTILES} numbers are expected")
    except FileNotFoundError as error:
        raise UnknownError(
            f"the model directory has no {KNOWN}. A model that answers with any number of"
            " categories has none, since its answer may be none of them; train any other model"
            " again."
        ) from error
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnknownError(f"{KNOWN} cannot be read: {error}.") from error
    return float(np.quantile(energies, known_fraction))
