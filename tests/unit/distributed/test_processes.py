"""Inputs are opened before PyTorch is loaded, unless a launcher has started several processes."""

import os
import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.distributed import DistNetworkError
from torch.distributed.elastic.rendezvous import RendezvousConnectionError

from train_pytorch_model.distributed import story, workers
from train_pytorch_model.distributed.processes import run_in_processes
from train_pytorch_model.distributed.world import World
from train_pytorch_model.errors import FailedWorkersError, InvalidDatasetError
from train_pytorch_model.machine.launch import LAUNCHER, Agent, LaunchError
from train_pytorch_model.machine.threads import SWITCH_S

COMMAND = ["score", "--quiet"]


def never(*_: object) -> Any:
    raise AssertionError("it must not be called")


@pytest.fixture
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)


@pytest.mark.usefixtures("_no_gpu")
def test_a_process_alone_runs_the_story_on_its_inputs_with_a_short_switch_interval() -> None:
    inputs: Any = object()

    def story(opened: Any, world: World) -> tuple[object, ...]:
        return opened, world.size, sys.getswitchinterval()

    returned = run_in_processes(story, lambda: inputs, COMMAND, {})
    assert returned == (inputs, 1, pytest.approx(SWITCH_S, rel=0.01))


@pytest.mark.parametrize(
    "environment", [{}, {"RANK": "0", "WORLD_SIZE": "1"}, {"AZUREML_NODE_COUNT": "1"}]
)
def test_a_refusal_of_a_process_alone_comes_before_pytorch(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> Any:
        raise InvalidDatasetError("Dataset", "it is empty.")

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(story, "run_story", never)
    with pytest.raises(InvalidDatasetError, match="it is empty"):
        run_in_processes(never, refuse, COMMAND, {})


def test_inputs_that_leave_nothing_to_do_start_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "run_story", never)
    nothing: Any = None
    run_in_processes(never, lambda: nothing, COMMAND, {})


def test_a_launch_that_cannot_work_is_refused_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(LaunchError, match="Only one of RANK and WORLD_SIZE is set"):
        run_in_processes(never, never, COMMAND, {})


@pytest.mark.parametrize(
    "environment",
    [{}, {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.4", "AZUREML_NODE_COUNT": "2"}],
    ids=["on one machine", "a node of Azure ML"],
)
@pytest.mark.parametrize("status", [0, 3])
def test_a_launcher_checks_the_inputs_and_fails_with_the_status_of_its_workers(
    environment: dict[str, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []

    def start_workers(agent: Agent, arguments: Sequence[str]) -> int:
        done.append((agent.num_processes, arguments))
        return status

    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(story, "start_workers", start_workers)
    inputs: Any = "inputs"

    def open_inputs() -> Any:
        done.append(inputs)
        return inputs

    if status:
        with pytest.raises(FailedWorkersError, match=f"ended with status {status}") as ended:
            run_in_processes(never, open_inputs, COMMAND, {})
        assert ended.value.status == status
    else:
        run_in_processes(never, open_inputs, COMMAND, {})
    assert done == ["inputs", (2, COMMAND)]


def test_processes_that_cannot_meet_are_reported_in_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As without a loopback interface, which only the administrator can take away."""

    def fail(*_: object) -> Any:
        raise RendezvousConnectionError("See inner exception.") from DistNetworkError(
            "Network is\nunreachable"
        )

    def fail_to_connect() -> None:
        raise OSError("No route to host")

    monkeypatch.setattr(workers, "elastic_launch", lambda *_: fail)
    with pytest.raises(
        LaunchError, match=r"cannot meet on this machine, .* loopback .*: Network is unreachable"
    ):
        workers.start_workers(Agent(2), COMMAND)
    monkeypatch.setattr(workers, "check_loopback", fail_to_connect)
    with pytest.raises(
        LaunchError, match=r"cannot meet on this machine, .* loopback .*: No route to host"
    ):
        workers.start_workers(Agent(2), COMMAND)
    assert LAUNCHER not in os.environ
