"""Which evidence about training images counts after a race."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from train_pytorch_model.formats.race_record import ARRAYS
from train_pytorch_model.publishing.find_suspects import Evidence, _training_suspects
from train_pytorch_model.quality.suspects import Suspects

COUNT = 300
WRONG = np.array([3, 50, 200])
NONE = Suspects(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), 100)
"""Of the validation images: then margins, which list as many, list none."""


class Images:
    """The training images, all of the first of three categories."""

    class_indices = np.zeros(COUNT, np.int64)

    def __len__(self) -> int:
        return COUNT


def listed(root: Path, num_predicted: int, has_margins: bool) -> list[int]:
    """Return the suspects if so many images were predicted, `WRONG` as of another category."""
    probabilities = np.tile([0.98, 0.01, 0.01], (COUNT, 1))
    probabilities[WRONG] = (0.0001, 0.9998, 0.0001)
    probabilities[num_predicted:] = np.nan
    np.savez(root / ARRAYS, weight=np.zeros((3, 4)), bias=np.zeros(3), probabilities=probabilities)
    margins = np.full(COUNT, 0.9 if has_margins else np.nan)
    inputs: Any = SimpleNamespace(
        race=object(), model=SimpleNamespace(root=root), training=Images()
    )
    nothing: Any = None
    evidence = Evidence(inputs, (margins, np.ones(COUNT, np.int64)), nothing, nothing)
    return sorted(_training_suspects(evidence, NONE).indices.tolist())


@pytest.mark.parametrize(
    ("num_predicted", "has_margins", "expected"),
    [(COUNT, True, WRONG.tolist()), (COUNT, False, WRONG.tolist()), (100, False, [3, 50])],
)
def test_predictions_out_of_fold_count(
    tmp_path: Path, num_predicted: int, has_margins: bool, expected: list[int]
) -> None:
    assert listed(tmp_path, num_predicted, has_margins) == expected


def test_margins_count_if_few_of_the_images_that_have_them_were_predicted(tmp_path: Path) -> None:
    assert listed(tmp_path, 100, has_margins=True) == []
