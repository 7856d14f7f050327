"""A checkpoint is checked against the network before anything of it is restored."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from tests.snapshots import snapshot_of, start, through_a_file, trained
from tests.trainings import ALONE
from torch import Tensor

from train_pytorch_model.formats.reading import MalformedFileError
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.snapshot import check, gather


def whole() -> Checkpoint:
    checkpoint = gather(snapshot_of(trained()), ALONE)
    assert checkpoint is not None
    return through_a_file(checkpoint)


def changed(**tensors: Tensor) -> Checkpoint:
    checkpoint = whole()
    return Checkpoint({**checkpoint.tensors, **tensors}, checkpoint.values)


def without(mapping: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != name}


def test_a_checkpoint_of_the_same_network_is_accepted() -> None:
    check(start().engine, whole())


@pytest.mark.parametrize(
    ("checkpoint", "reason"),
    [
        pytest.param(
            lambda: changed(**{"network.9.weight": torch.zeros(1)}),
            "network.9.weight does not fit",
            id="extra",
        ),
        pytest.param(
            lambda: changed(**{"momentum.0.bias": torch.zeros(5)}),
            "momentum.0.bias does not fit",
            id="shape",
        ),
        pytest.param(
            lambda: changed(**{"best.0.bias": torch.zeros(4, dtype=torch.float64)}),
            "best.0.bias does not fit",
            id="type",
        ),
        pytest.param(
            lambda: Checkpoint(without(whole().tensors, "network.0.bias"), whole().values),
            "a tensor of the network is missing",
            id="missing",
        ),
        pytest.param(
            lambda: Checkpoint(without(whole().tensors, "momentum.0.bias"), whole().values),
            "a tensor of the network is missing",
            id="no momentum",
        ),
        pytest.param(
            lambda: Checkpoint(whole().tensors, {}),
            "it is of another version of this program.",
            id="no values",
        ),
        pytest.param(
            lambda: Checkpoint(whole().tensors, without(whole().values, "progress")),
            "its values are not those of a run: 'progress'",
            id="no progress",
        ),
        pytest.param(
            lambda: Checkpoint(whole().tensors, {**whole().values, "progress": {"epoch": "one"}}),
            "its values are not those of a run: Expected `int`, got `str`",
            id="a string for a number",
        ),
        pytest.param(
            lambda: Checkpoint(
                whole().tensors, {**whole().values, "best": {"epoch": 1, "metrics": {"loss": 1}}}
            ),
            "its values are not those of a run: ",
            id="invalid metrics",
        ),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    checkpoint: Callable[[], Checkpoint], reason: str
) -> None:
    with pytest.raises(MalformedFileError) as raised:
        check(start().engine, checkpoint())
    assert str(raised.value).startswith(reason)


def test_margins_of_other_images_are_damage() -> None:
    checkpoint = whole()
    of_others = {"margins": torch.zeros(3, 5, dtype=torch.int32)}
    damaged = Checkpoint({**checkpoint.tensors, **of_others}, checkpoint.values)
    with pytest.raises(MalformedFileError, match="margins"):
        check(start().engine, damaged)


def test_steps_that_wait_of_weights_that_are_not_trained_are_damage() -> None:
    training = start()
    training.engine.network.get_parameter("0.weight").requires_grad_(False)
    checkpoint = gather(snapshot_of(training), ALONE)
    assert checkpoint
    steps = {"delayed.0.weight": torch.zeros(3, 3, 2, 2, dtype=torch.float64)}
    damaged = Checkpoint({**checkpoint.tensors, **steps}, checkpoint.values)
    with pytest.raises(MalformedFileError, match=r"delayed\.0\.weight does not fit"):
        check(training.engine, damaged)
