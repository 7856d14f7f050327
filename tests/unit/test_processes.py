"""The inputs of a command are opened once per node, however its processes were started."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.azure_job import mpi_job, pytorch_job

from train_pytorch_model.commands import processes
from train_pytorch_model.commands.launch import LAUNCHER, Agent
from train_pytorch_model.commands.processes import opened_once, work_or_start_workers
from train_pytorch_model.words.errors import InvalidDatasetError

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere each process opens its own")

COMMAND = ["train", "--untrained-model", "untrained"]


def torchrun(rank: int, **more: str) -> dict[str, str]:
    """The environment of one of four processes on two nodes."""
    return {
        "TORCHELASTIC_RUN_ID": "1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "GROUP_RANK": str(rank // 2),
        "RANK": str(rank),
        "WORLD_SIZE": "4",
        "LOCAL_RANK": str(rank % 2),
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "node0",
        "MASTER_PORT": "29500",
        **more,
    }


def by_hand(rank: int) -> dict[str, str]:
    return {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


class Opener:
    """Opens inputs, and counts how often."""

    def __init__(self) -> None:
        self.times = 0

    def __call__(self) -> str:
        self.times += 1
        return f"inputs {self.times}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder of this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def opened_by(
    environments: Sequence[Mapping[str, str]], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> list[str]:
    """The inputs that processes with these environments get."""
    opener = Opener()
    found = []
    for environment in environments:
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            found.append(opened_once(opener, [*COMMAND, *arguments]))
    return found


@pytest.mark.parametrize(
    "environments",
    [
        pytest.param([torchrun(2), torchrun(3)], id="torchrun"),
        pytest.param(mpi_job(1, 2, "10.0.0.4"), id="MPI"),
        pytest.param(pytorch_job(1, 2, "10.0.0.4"), id="Azure ML"),
        pytest.param([by_hand(0), by_hand(1)], id="by hand"),
    ],
)
def test_the_processes_of_a_node_share_the_inputs_that_one_has_opened(
    environments: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    assert opened_by(environments, monkeypatch) == ["inputs 1", "inputs 1"]
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({}, {}, id="alone"),
        pytest.param(torchrun(1), torchrun(2), id="two nodes"),
        pytest.param(torchrun(0), torchrun(0, TORCHELASTIC_RESTART_COUNT="1"), id="restarted"),
        pytest.param(torchrun(0), torchrun(1, MASTER_PORT="29501"), id="two runs"),
        pytest.param({"RANK": "0"}, {"RANK": "0"}, id="RANK alone"),
    ],
)
def test_unrelated_processes_open_their_own_inputs(
    first: dict[str, str], second: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert opened_by([first, second], monkeypatch) == ["inputs 1", "inputs 2"]


def test_processes_of_another_command_or_folder_open_their_own_inputs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert opened_by([torchrun(0)], monkeypatch) == ["inputs 1"]
    assert opened_by([torchrun(1)], monkeypatch, "--epochs", "3") == ["inputs 1"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert opened_by([torchrun(1)], monkeypatch) == ["inputs 1"]


def test_workers_share_the_inputs_of_the_process_that_starts_them(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found: list[Any] = []

    def start_workers(agent: Agent, arguments: Sequence[str]) -> int:
        found.append("workers")
        launcher = {LAUNCHER: str(os.getpid())}
        for rank in range(agent.num_processes):
            found.extend(opened_by([torchrun(rank) | launcher], monkeypatch, *arguments[len(COMMAND) :]))
        return 0

    monkeypatch.setattr(processes, "start_workers", start_workers)
    work_or_start_workers(lambda _: None, [*COMMAND, "--fresh"], "inputs 0", lambda: found.append("before"))
    assert found == ["before", "workers", "inputs 0", "inputs 0"]
    assert list(folder.iterdir()) == []


def test_an_input_error_is_raised_in_all_processes_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise InvalidDatasetError("Training dataset", "it is empty.")

    def never() -> None:
        raise AssertionError("one has been refused already")

    for rank, open_inputs in enumerate((refuse, never)):
        with monkeypatch.context() as patch:
            for name, value in torchrun(rank).items():
                patch.setenv(name, value)
            with pytest.raises(InvalidDatasetError, match="it is empty"):
                opened_once(open_inputs, COMMAND)
