"""A process that is lost, or does not belong to the run, soon ends all others, and is named."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from torch._C._distributed_c10d import TCPStore

from tests.faults.file_injections import missing_for_rank
from tests.faults.injections import (
    environment,
    fault_at_step,
    late,
    little_patience_with_others,
    other_options_for_rank,
    signal_at_step,
)
from tests.faults.trials import DEADLINE_S, Bench, Injection, wait_until

AGENT = """
import sys
from train_pytorch_model.distributed.workers import start_workers
from train_pytorch_model.machine.launch import Agent

if __name__ == "__main__":
    sys.exit(start_workers(Agent(2), sys.argv[1:]))
"""
LONG = ("--epochs", "100000", "--patience", "100000", "--learning-rate", "1e-9")


def test_a_stopped_rank_is_named_after_the_timeout(bench: Bench, output: Path) -> None:
    stop = partial(signal_at_step, number=3, signals=[signal.SIGSTOP], rank=1)
    patience = partial(little_patience_with_others, seconds=10.0)
    job = bench.start(output, injections=[patience, stop], ranks=2)
    first, second = job.processes
    assert first.wait() == 4
    said = first.stderr.read_text()
    assert f"have lost each other: rank 1 (process {second.pid} on " in said
    assert ") is stopped. The same command resumes from the last checkpoint.\n" in said
    second.send(signal.SIGKILL)
    assert second.wait() == -signal.SIGKILL


@pytest.mark.parametrize("rank", [0, 1])
def test_an_exception_on_one_rank_ends_all_and_is_reported_once(
    bench: Bench, output: Path, rank: int
) -> None:
    ended = bench.train(output, injections=[partial(fault_at_step, number=3, rank=rank)], ranks=2)
    assert ended.statuses[rank] == 1
    assert ended.statuses[1 - rank] == 4
    assert ended.stderr.count(f"[rank{rank}]: ArithmeticError: nobody has thought of this\n") == 1
    assert (
        ended.stderr.count(
            f"LostRankError: The processes of the run have lost each other: rank {rank} ("
        )
        == 1
    )
    assert bench.train(output, ranks=2).statuses == [0, 0]


def test_a_rank_started_by_another_command_is_refused(bench: Bench, output: Path) -> None:
    other = partial(other_options_for_rank, rank=1, options=["--random-seed", "7"])
    ended = bench.train(output, injections=[other], ranks=2)
    assert ended.statuses == [4, 4]
    assert ended.stderr == (
        "TrainingError: Not all processes were started with the command of rank 0:\n"
        "  rank 1: --random-seed is 7, not 1\nStart all of them with the same one.\n"
    )
    assert not output.exists()


@pytest.mark.parametrize("rank", [0, 1])
def test_a_refusal_on_one_host_ends_all_processes_with_the_same_message(
    bench: Bench, output: Path, rank: int
) -> None:
    missing = partial(missing_for_rank, rank=rank, path=str(bench.folders / "validation"))
    ended = bench.train(output, injections=[missing], ranks=2)
    assert ended.statuses == [3, 3]
    assert ended.stderr.startswith(
        f'InvalidDatasetError: Validation dataset "{bench.folders}/validation" is'
    )
    assert ended.stderr.count("\n") == 1


def test_an_output_that_is_refused_ends_all_processes_with_the_same_message(
    bench: Bench, output: Path
) -> None:
    output.mkdir()
    (output / "mine").touch()
    ended = bench.train(output, ranks=2)
    assert ended.statuses == [2, 2]
    assert ended.stderr.startswith(f"OutputDirectoryError: --trained-model {output} is not empty")
    assert ended.stderr.count("\n") == 1


def test_processes_of_a_complete_run_have_nothing_to_do(bench: Bench, output: Path) -> None:
    assert bench.train(output, ranks=2).statuses == [0, 0]
    ended = bench.train(output, ranks=2)
    assert ended.statuses == [0, 0]
    assert ended.stdout.endswith("is already complete, from this same command.\n")


def test_a_launcher_names_the_killed_rank_and_leaves_no_workers(bench: Bench, output: Path) -> None:
    with launched(bench, output) as (agent, workers):
        os.kill(workers[1], signal.SIGKILL)
        said = agent.communicate(timeout=DEADLINE_S)[1]
        assert agent.returncode == 128 + signal.SIGKILL, said
        assert (
            f"Rank 1 (process {workers[1]}) was ended by SIGKILL, as the system does when memory"
            in said
        )
        assert "Traceback" not in said
        wait_until(lambda: not any(map(is_alive, workers)), "no workers")


def test_no_worker_outlives_its_launcher(bench: Bench, output: Path) -> None:
    with launched(bench, output) as (agent, workers):
        agent.kill()
        agent.wait()
        wait_until(lambda: not any(map(is_alive, workers)), "no workers")


def test_processes_restarted_by_torchrun_reconnect_and_resume(bench: Bench, output: Path) -> None:
    line = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "--max-restarts",
        "1",
    ]
    command = [*line, "-m", "train_pytorch_model", *bench.arguments(output, "--epochs", "8")]
    with launched(bench, output, *command) as (torchrun, workers):
        os.kill(workers[1], signal.SIGKILL)
        said = torchrun.communicate(timeout=DEADLINE_S)
        assert torchrun.returncode == 0, said
        assert "Resumed     " in said[0]
        assert (output / "_meta.yaml").exists()


def test_a_restarted_group_ignores_addresses_left_by_the_previous_one(
    bench: Bench, tmp_path: Path
) -> None:
    """torchrun reuses the store, where the first process to arrive finds the addresses of dead
    processes.
    """
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    faults: list[Injection] = [
        partial(signal_at_step, number=3, signals=[signal.SIGKILL], rank=1),
        partial(late, rank=1, seconds=5.0),
    ]
    for attempt, expected in enumerate(([4, -signal.SIGKILL], [0, 0])):
        variables = {
            "MASTER_PORT": str(store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
            "TORCHELASTIC_RESTART_COUNT": str(attempt),
        }
        injections = [partial(environment, **variables), faults[attempt]]
        ended = bench.train(tmp_path / "trained", injections=injections, ranks=2)
        assert ended.statuses == expected, ended


@contextlib.contextmanager
def launched(
    bench: Bench, output: Path, *command: str
) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A launcher and its two workers in rank order, after their first epoch."""
    command = command or ("-c", AGENT, *bench.arguments(output, *LONG))
    launcher = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"CUDA_VISIBLE_DEVICES": "", "MLFLOW_TRACKING_URI": f"sqlite:///{bench.store}"},
    )
    workers: list[int] = []
    try:
        assert launcher.stdout is not None
        assert any(line.startswith("Epoch 1/") for line in launcher.stdout)
        workers = sorted(children_of(launcher.pid), key=rank_of_process)
        assert len(workers) == 2
        yield launcher, workers
    finally:
        for pid in (launcher.pid, *workers):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        launcher.communicate()


def children_of(pid: int) -> list[int]:
    """The child processes that have a rank."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    return [child for child in children if b"\0RANK=" in environment_of(child)]


def rank_of_process(pid: int) -> int:
    return int(environment_of(pid).partition(b"\0RANK=")[2].partition(b"\0")[0])


def environment_of(pid: int) -> bytes:
    return b"\0" + Path(f"/proc/{pid}/environ").read_bytes()


def is_alive(pid: int) -> bool:
    from train_pytorch_model.machine.liveness import start_of

    return start_of(pid) is not None
