"""What the processes of a run see of each other: who shares a machine, a file, a GPU."""

import os
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from train_pytorch_model.distributed.peers import Peer, find_failures, on_one_gpu, place_of
from train_pytorch_model.distributed.world import World


def peer(machine: str, kernel: str = "k", namespace: str = "n", gpu: str = "") -> Peer:
    return Peer("host", 1, "0", kernel, machine, namespace, gpu)


ONE_MACHINE = [peer("a"), peer("a"), peer("a")]
TWO_MACHINES = [peer("a", "k"), peer("b", "l"), peer("a", "k"), peer("b", "l")]
CONTAINERS = [peer("a"), peer("b"), peer("c")]  # of one kernel


@pytest.mark.parametrize(
    ("peers", "said_size", "places"),
    [
        pytest.param(ONE_MACHINE, 3, [(0, 3), (1, 3), (2, 3)], id="as the launcher says"),
        pytest.param(ONE_MACHINE, 1, [(0, 3), (1, 3), (2, 3)], id="three launchers on a machine"),
        pytest.param(TWO_MACHINES, 2, [(0, 2), (0, 2), (1, 2), (1, 2)], id="two machines in turn"),
        pytest.param(TWO_MACHINES, 4, [(0, 2), (0, 2), (1, 2), (1, 2)], id="too many are said"),
        pytest.param(CONTAINERS, 1, [(0, 1), (0, 1), (0, 1)], id="a node for each container"),
        pytest.param(CONTAINERS, 3, [(0, 3), (0, 3), (0, 3)], id="a container for each process"),
    ],
)
def test_a_process_is_placed_by_what_all_see(
    peers: Sequence[Peer], said_size: int, places: list[tuple[int, int]]
) -> None:
    assert [place_of(rank, peers, said_size) for rank in range(len(peers))] == places


@pytest.mark.parametrize(
    ("peers", "ranks"),
    [
        ([peer("a"), peer("a")], []),
        ([peer("a", gpu="1"), peer("a", gpu="2")], []),
        ([peer("a", "k", gpu="1"), peer("b", "l", gpu="1")], []),
        ([peer("a", gpu="1"), peer("a", gpu="2"), peer("b", gpu="2")], [1, 2]),
    ],
)
def test_a_gpu_that_several_have_taken_is_found(peers: Sequence[Peer], ranks: list[int]) -> None:
    assert on_one_gpu(peers) == ranks


@pytest.mark.parametrize(
    ("peers", "sharers", "files"),
    [
        pytest.param(ONE_MACHINE, [0, 1, 2], 1, id="one machine"),
        pytest.param(TWO_MACHINES, [0, 2], 1, id="two machines"),
        pytest.param([peer("a"), peer("a", namespace="m")], [0], 2, id="two process namespaces"),
    ],
)
def test_those_share_memory_that_can_open_each_others_files(
    peers: Sequence[Peer], sharers: list[int], files: int
) -> None:
    world = World(0, len(peers), 0, len(peers), torch.device("cpu"), tuple(peers))
    assert world.memory_sharers == sharers
    if hasattr(os, "memfd_create"):
        assert world.memory_files == files
    alone = replace(world, size=1, local_size=1)  # once the others have ended
    assert (alone.memory_sharers, alone.memory_files) == ([0], 1)


def test_a_process_of_another_machine_with_the_same_host_name_is_not_taken_for_dead() -> None:
    this = Peer.of_this_process()
    ended = replace(this, started="0")
    unseen = [replace(ended, machine="another"), replace(ended, namespace="another")]
    assert find_failures([this, ended, *unseen]) == {1: "has ended"}
