"""Fixtures that start each group of processes once."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.zygote.stand_in import stand_in

Records = Mapping[int, list[dict[str, Any]]]
"""Number of processes → the records of all ranks, in rank order."""

GROUP = Path(__file__).with_name("group.py")


def torchrun(num_processes: int, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command in `num_processes` processes with torchrun, as typed in a shell."""
    line = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_processes)]
    return subprocess.run(
        [stand_in(), *line, *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


def two_nodes(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command with two torchruns of one process each on this host, as if on two nodes."""
    port = str(free_port())
    line = ["-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    line += ["--master-addr", "127.0.0.1", "--master-port", port]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    other = subprocess.Popen(
        [stand_in(), *line, "--node-rank", "1", *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=env,
    )
    with other:
        ended = subprocess.run(
            [stand_in(), *line, "--node-rank", "0", *map(str, command)],
            capture_output=True,
            text=True,
            check=False,
            env=env,
        )
    ended.returncode = ended.returncode or other.returncode
    return ended


def init_float32(output: Path, architecture: str) -> Path:
    """Write an untrained model that computes in float32 everywhere."""
    from train_pytorch_model.commands.init_model import InitModel
    from train_pytorch_model.config.recipe import Recipe

    InitModel(
        output=output, architecture=architecture, recipe=Recipe(precision="float32", image_size=32)
    ).run()
    return output


@pytest.fixture(scope="session")
def small_network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained network of a seventh of a ResNet-18's weights, which processes exchange in every
    step.
    """
    return init_float32(tmp_path_factory.mktemp("small") / "untrained", "mobilenet_v3_small")


@pytest.fixture(scope="session")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    """The measurements of groups of one, two and three processes; one is this process."""
    import torch

    from tests.ranks.checks import measure, open_inputs, paint_data_sets
    from tests.ranks.group import SIZES
    from tests.trainings import SMALL
    from train_pytorch_model.distributed.world import World

    data = tmp_path_factory.mktemp("data")
    paint_data_sets(data)
    # Of the small networks, the one whose gradients are large before any training.
    untrained_model = init_float32(data / "untrained", SMALL)
    alone = World(rank=0, size=1, local_rank=0, local_size=1, device=torch.device("cpu"))
    found = {1: [measure(open_inputs(data, untrained_model), alone)]}
    output = tmp_path_factory.mktemp("groups")
    command = [sys.executable, *map(str, (GROUP, data, untrained_model, output))]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert ended.returncode == 0, ended.stderr
    for size in SIZES:
        found[size] = [
            json.loads((output / f"{size}/{rank}.json").read_text()) for rank in range(size)
        ]
    return found
