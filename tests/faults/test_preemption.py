"""A low-priority job of Azure ML is ended, and started again on another node."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.trials import Bench, Ended, Injection, Result, result_of

NEW_RUN = """
import mlflow, sys
client = mlflow.MlflowClient(sys.argv[1])
run = client.create_run(client.get_experiment_by_name("train_pytorch_model").experiment_id).info.run_id
client.log_metric(run, "Learning rate", 0.01, step=1)
print(run)
"""
UPLOAD = """
import mlflow, sys
mlflow.MlflowClient(sys.argv[1]).log_artifacts(*sys.argv[2:])
"""


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """The working directory of the job."""
    folder = tmp_path / "node"
    folder.mkdir()
    return folder


@pytest.fixture
def run_id(bench: Bench) -> str:
    """The run that Azure ML has made for the job, with one epoch."""
    return python(NEW_RUN, f"sqlite:///{bench.store}")


def python(code: str, *arguments: str | Path) -> str:
    command = [sys.executable, "-W", "ignore", "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def preempt(bench: Bench, output: Path, node: Path, run_id: str) -> list[Injection]:
    """Start the job and end it in its second epoch; returns what starts it again."""
    job: list[Injection] = [
        ("as_an_azure_job", {"folder": str(node)}),
        ("environment", {"MLFLOW_RUN_ID": run_id}),
    ]
    stop = ("signal_at_step", {"number": 6, "signals": [signal.SIGTERM]})
    assert bench.train(output, injections=[*job, stop]).status == 128 + signal.SIGTERM
    assert list(node.glob("outputs/train_pytorch_model/checkpoints/*.json"))
    assert list(output.glob("_run/checkpoints/*.json"))
    return job


def train_again(bench: Bench, output: Path, job: list[Injection]) -> Ended:
    ended = bench.train(output, injections=job)
    assert ended.status == 0, ended
    assert not (output / "_run").exists()
    return ended


@pytest.mark.parametrize("left", ["outputs", "output", "artifacts", "artifacts of a restart"])
def test_a_job_resumes_from_whatever_is_left(
    left: str,
    bench: Bench,
    undisturbed: Callable[[int], Result],
    output: Path,
    node: Path,
    run_id: str,
) -> None:
    job = preempt(bench, output, node, run_id)
    if left.startswith("artifacts"):
        where = "outputs" if left == "artifacts" else "retry_001/outputs"
        python(UPLOAD, f"sqlite:///{bench.store}", run_id, node / "outputs", where)
    if left != "outputs":
        shutil.rmtree(node / "outputs")
    if left != "output":
        shutil.rmtree(output)
    ended = train_again(bench, output, job)
    assert "Resumed     in epoch 2, after " in ended.stdout
    assert "The job's run in MLflow has" not in ended.stdout
    assert result_of(output) == undisturbed(1)


def test_a_job_that_finds_no_checkpoint_says_so_loudly(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, node: Path, run_id: str
) -> None:
    job = preempt(bench, output, node, run_id)
    shutil.rmtree(node / "outputs")
    shutil.rmtree(output)
    said = train_again(bench, output, job)
    warning = "Warning: The job's run in MLflow has 1 epoch already, but there is no checkpoint"
    assert (said.stdout + said.stderr).count(warning) == 1
    assert result_of(output) == undisturbed(1)


def test_a_fresh_start_leaves_the_copy_alone(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, node: Path, run_id: str
) -> None:
    job = preempt(bench, output, node, run_id)
    shutil.rmtree(node / "outputs")
    ended = bench.train(output, "--fresh", injections=job)
    assert ended.status == 0, ended
    assert "Resumed" not in ended.stdout
    assert result_of(output) == undisturbed(1)
