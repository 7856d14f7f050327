"""Two launchers of a machine whose processes take the same GPU."""

import os
import subprocess
import sys

import pytest
import torch
from tests.ports import free_port

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

JOIN = """
from train_pytorch_model.distributed.rendezvous import join_world
from train_pytorch_model.machine.launch import LaunchError

try:
    with join_world():
        print("met")
except LaunchError as error:
    print(error)
"""


def test_processes_of_two_launchers_that_take_one_gpu_are_refused_before_nccl_fails() -> None:
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    place = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", JOIN],
            env=os.environ | meeting | place | {"RANK": str(rank)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        said, _ = process.communicate(timeout=120)
        assert said.startswith("Ranks 0, 1 have taken the same GPU of ")
        assert "CUDA_VISIBLE_DEVICES" in said
