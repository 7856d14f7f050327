"""Snapshots of several processes: each gets back its own part, and any number of processes
continues.
"""

from typing import Any, TypeVar, cast

import numpy as np
import pytest
import torch
from tests.snapshots import CPU, snapshot_of, start, through_a_file, trained
from tests.trainings import ALONE, Training

from train_pytorch_model.distributed.world import World
from train_pytorch_model.training.checkpoint_files import Checkpoint
from train_pytorch_model.training.margins import merge
from train_pytorch_model.training.snapshot import gather, restore, scatter

T = TypeVar("T")


class FakeWorld(World):
    """One of several processes, with given results of its collectives."""

    def __init__(self, rank: int, size: int, results: list[Any]) -> None:
        super().__init__(rank, size, rank, size, CPU)
        object.__setattr__(self, "_results", results)

    def gather(self, values: Any) -> Any:  # noqa: ARG002
        return cast(Any, self)._results[0]

    def gather_on_main(self, values: Any) -> Any:  # noqa: ARG002
        return cast(Any, self)._results[1]

    def broadcast(self, value: T) -> T:
        return value


def gathered(trainings: list[Training]) -> Checkpoint:
    snapshots = [snapshot_of(training) for training in trainings]
    unreadable = [
        item for s in snapshots for item in s.values["progress"]["newly_unreadable"].items()
    ]
    local = [dict(snapshot.local) for snapshot in snapshots]
    checkpoint = gather(snapshots[0], FakeWorld(0, len(trainings), [unreadable, local]))
    assert checkpoint is not None
    return through_a_file(checkpoint)


def test_each_process_gets_back_its_own_statistics_and_sums() -> None:
    trainings = [trained(rank) for rank in range(3)]
    checkpoint = gathered(trainings)
    for rank, training in enumerate(trainings):
        snapshot = scatter(checkpoint, FakeWorld(rank, 3, []))
        assert snapshot is not None
        assert torch.equal(snapshot.local["sums"], training.state.sums.values)
        assert torch.equal(snapshot.local["statistics"], snapshot_of(training).local["statistics"])
        assert snapshot.values["progress"]["newly_unreadable"] == {
            "3": "torn",
            "4": "torn",
            "5": "torn",
        }


@pytest.mark.parametrize("size", [1, 2, 4])
def test_another_number_of_processes_gets_mean_statistics_and_the_same_total_sums(
    size: int,
) -> None:
    trainings = [trained(rank) for rank in range(3)]
    checkpoint = gathered(trainings)
    snapshots = [scatter(checkpoint, FakeWorld(rank, size, [])) for rank in range(size)]
    local = [snapshot.local for snapshot in snapshots if snapshot is not None]
    total = torch.stack([training.state.sums.values for training in trainings]).sum(dim=0)
    assert torch.equal(torch.stack([each["sums"] for each in local]).sum(dim=0), total)
    mean = torch.stack([snapshot_of(training).local["statistics"] for training in trainings]).mean(
        dim=0
    )
    assert all(torch.equal(each["statistics"], mean) for each in local)


def test_hashes_of_all_machines_are_known_again() -> None:
    """The second process shares the memory of the first, and so has none itself."""
    hashes = np.random.default_rng(1).integers(1, 256, (6, 16), dtype=np.uint8)
    trainings = [trained(rank) for rank in range(3)]
    for training, known in ((trainings[0], range(3)), (trainings[2], range(2, 5))):
        training.state.hashes = np.zeros((6, 16), np.uint8)
        training.state.hashes[known] = hashes[known]
    checkpoint = gathered(trainings)
    for size in (1, 3):
        snapshot = scatter(checkpoint, FakeWorld(0, size, []))
        assert snapshot is not None
        resumed = start()
        resumed.state.hashes = np.zeros((6, 16), np.uint8)
        restore(resumed.engine, resumed.state, snapshot)
        assert (resumed.state.hashes[:5] == hashes[:5]).all()
        assert not resumed.state.hashes[5].any()


@pytest.mark.parametrize("size", [1, 2, 3])
def test_any_number_of_processes_continues_with_the_same_margins(size: int) -> None:
    trainings = [trained(rank) for rank in range(3)]
    resumed = [start() for _ in range(size)]
    checkpoint = gathered(trainings)
    for rank, training in enumerate(resumed):
        snapshot = scatter(checkpoint, FakeWorld(rank, size, []))
        assert snapshot is not None
        restore(training.engine, training.state, snapshot)
    before, after = (
        merge([each.state.margins.tensor() for each in of]) for of in (trainings, resumed)
    )
    assert before[0, 0].count_nonzero() == 6
    assert torch.equal(before, after)


def test_without_a_checkpoint_no_process_gets_a_snapshot() -> None:
    assert scatter(None, ALONE) is None


def test_only_the_main_process_gets_the_gathered_checkpoint() -> None:
    assert gather(snapshot_of(trained()), FakeWorld(1, 2, [[], []])) is None
