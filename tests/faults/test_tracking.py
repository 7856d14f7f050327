"""A failing tracking server costs a warning, a killed MLflow process nothing; training is unaffected."""

import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.trials import Bench, Injection, Result, checkpoints_of, result_of, wait_until
from train_pytorch_model.machine.process_table import start_of


@pytest.mark.parametrize("is_there", [False, True], ids=["refuses", "never answers"])
def test_a_run_completes_without_its_tracking_server(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, tmp_path: Path, is_there: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        if not is_there:
            server.shutdown(socket.SHUT_RDWR)
        injections: list[Injection] = [
            ("every_checkpoint_is_waited_for", {}),
            ("environment", {"MLFLOW_TRACKING_URI": f"http://127.0.0.1:{server.getsockname()[1]}"}),
            ("constants", {"tracking__tracker__CLOSING_S": 2.0}),
            ("mlflow_has_a_process", {"pid_file": str(tmp_path / "pid")}),
        ]
        ended = bench.launch(bench.arguments(output), injections).wait()
    assert ended.statuses == [0], ended
    assert ended.stdout.count("Warning: MLflow does not have all metrics (") == 1
    assert "Traceback" not in ended.stderr
    assert result_of(output) == undisturbed(1)


def test_a_run_completes_without_the_mlflow_process(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, tmp_path: Path
) -> None:
    """The run and its model are complete: the training process does the remaining work."""
    pid_file = tmp_path / "pid"
    injections: list[Injection] = [
        ("every_checkpoint_is_waited_for", {}),
        ("mlflow_has_a_process", {"pid_file": str(pid_file)}),
    ]
    job = bench.launch(bench.arguments(output), injections)
    wait_until(lambda: bool(checkpoints_of(output)), "a checkpoint")
    os.kill(int(pid_file.read_text()), signal.SIGKILL)
    ended = job.wait()
    assert ended.statuses == [0], ended
    assert "Warning: MLflow" not in ended.stdout
    assert "Traceback" not in ended.stderr
    assert (output / "MLmodel").exists()
    assert result_of(output) == undisturbed(1)


def test_the_mlflow_process_ends_with_the_run(bench: Bench, output: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    job = bench.launch(bench.arguments(output), [("mlflow_has_a_process", {"pid_file": str(pid_file)})])
    wait_until(lambda: bool(checkpoints_of(output)), "a checkpoint")
    (process,) = job.processes
    process.send(signal.SIGKILL)
    assert job.wait().statuses == [-signal.SIGKILL]
    pid = int(pid_file.read_text())
    wait_until(lambda: start_of(pid) is None, "the end of the process of MLflow")
