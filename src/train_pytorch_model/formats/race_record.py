"""What a race of networks has found out, in `race.json` beside the weights of the winner.

`race.npz` has the solved classifier, which maps features of the winner to logits: `weight` (C, D)
and `bias` (C,). It also has what was predicted of each image by a classifier that has not learned
from it: `probabilities` (N, C), of the training and then of the validation images, NaN for those
that were left out. All are float32.
"""

import io
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

from train_pytorch_model.formats.reading import MalformedFileError, read_json
from train_pytorch_model.formats.writing import write_durably, write_json

RACE = "race.json"
ARRAYS = "race.npz"


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
    epochs: int  # of fine-tuning for which there is time; 0 for none


@dataclass(frozen=True)
class RaceArrays:
    """The solved classifier and its predictions."""

    weight: np.ndarray  # (C, D)
    bias: np.ndarray  # (C,)
    probabilities: np.ndarray  # (N, C)


def write_race(root: Path, record: RaceRecord, arrays: RaceArrays) -> None:
    """Write both files. Raises `OSError`."""
    write_record(root, record)
    content = io.BytesIO()
    values = {name: array.astype(np.float32) for name, array in asdict(arrays).items()}
    np.savez_compressed(content, **values)
    write_durably(root / ARRAYS, content.getvalue())


def write_record(root: Path, record: RaceRecord) -> None:
    """Write `race.json`. Raises `OSError`."""
    write_json(root / RACE, msgspec.to_builtins(record))


def read_race(root: Path) -> RaceRecord:
    """Read the record. Raises `MalformedFileError`."""
    return read_json(root / RACE, RaceRecord)


def read_race_arrays(root: Path) -> RaceArrays:
    """Read the arrays. Raises `MalformedFileError`."""
    try:
        with np.load(root / ARRAYS, allow_pickle=False) as arrays:
            return RaceArrays(arrays["weight"], arrays["bias"], arrays["probabilities"])
    except (OSError, ValueError, KeyError) as error:
        raise MalformedFileError(f"{ARRAYS} cannot be read: {error}.") from error
