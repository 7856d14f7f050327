"""What a race of networks has found out, in `race.json` beside the weights of the winner.

`race.npz` has what was predicted of each image by a classifier that has not learned from it:
`probabilities` (N, C), float32, of the training and then of the validation images, NaN for those
that were left out.
"""

import io
from pathlib import Path

import msgspec
import numpy as np

from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.formats.writing import write_durably, write_json

RACE = "race.json"
PREDICTIONS = "race.npz"


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A network of the race: a row of its table."""

    name: str
    licence: str = ""  # of its weights; empty if it is not known
    accuracy: float | None = None  # out of fold; None for one that was left out
    accuracy_interval: tuple[float, float] | None = None
    loss: float | None = None
    seconds: float | None = None  # which it took in the race
    images_per_second: float | None = None  # in service, on this machine
    megabytes: float | None = None
    remark: str = ""  # why it was left out


class RaceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A race: its candidates, the fastest first, and what was decided by it."""

    minutes: float
    candidates: tuple[Candidate, ...]
    chosen: str
    reason: str  # of the choice, as a sentence
    images: int  # on which the candidates were compared
    all_images: int  # of which these are a sample, if they are more
    accuracy: float  # out of fold, the choice of candidate and strength included
    accuracy_interval: tuple[float, float]
    strength: float  # of the penalty of the solved classifier
    temperature: float  # which is part of it
    # What the last layer is multiplied by when fine-tuning starts from it, see `softening`.
    softening: float
    epochs: int  # of fine-tuning for which there is time; 0 for none


def write_race(root: Path, record: RaceRecord, probabilities: np.ndarray) -> None:
    """Write both files. Raises `OSError`."""
    write_record(root, record)
    content = io.BytesIO()
    np.savez_compressed(content, probabilities=probabilities.astype(np.float32))
    write_durably(root / PREDICTIONS, content.getvalue())


def write_record(root: Path, record: RaceRecord) -> None:
    """Write `race.json`. Raises `OSError`."""
    write_json(root / RACE, msgspec.to_builtins(record))


def read_race(root: Path) -> RaceRecord:
    """Read the record. Raises `MalformedFileError`."""
    return read_json(root / RACE, RaceRecord)


def read_predictions(root: Path) -> np.ndarray:
    """Return the probabilities (N, C), float32. Raises `MalformedFileError`."""
    try:
        with np.load(root / PREDICTIONS, allow_pickle=False) as arrays:
            probabilities: np.ndarray = arrays["probabilities"]
    except (OSError, ValueError, KeyError) as error:
        raise MalformedFileError(f"{PREDICTIONS} cannot be read: {error}.") from error
    return probabilities
