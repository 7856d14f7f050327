"""A low-priority job of Azure ML is ended, and started again on another node."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tests.faults.injections import as_an_azure_job, environment, signal_at_step
from tests.faults.trials import Bench, Ended, Injection, Result, result_of

RUNS = 7
NEW_RUNS = """
import mlflow, sys
client = mlflow.MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name("train_pytorch_model").experiment_id
for _ in range(int(sys.argv[2])):
    run = client.create_run(experiment).info
    client.log_metric(run.run_id, "Learning rate", 0.01, step=1)
    print(run.run_id, run.artifact_uri.removeprefix("file://"))
"""


@dataclass(frozen=True)
class MlflowRun:
    """The run that Azure ML has made for the job, with one epoch."""

    id: str
    artifacts: Path


@pytest.fixture(scope="module")
def runs(bench: Bench) -> list[MlflowRun]:
    """A run for each test, and one for the job that is ended; loading MLflow takes seconds."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        NEW_RUNS,
        f"sqlite:///{bench.store}",
        str(RUNS),
    ]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [MlflowRun(run_id, Path(uri)) for run_id, uri in map(str.split, said.splitlines())]


@pytest.fixture
def run(runs: list[MlflowRun]) -> MlflowRun:
    return runs.pop()


@pytest.fixture(scope="module")
def ended_job(
    bench: Bench, runs: list[MlflowRun], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What a job leaves that ends in its second epoch: its working directory and its output."""
    root = tmp_path_factory.mktemp("job")
    (root / "node").mkdir()
    stop = partial(signal_at_step, number=6, signals=[signal.SIGTERM])
    started = job(root / "node", runs.pop())
    assert bench.train(root / "trained", injections=[*started, stop]).status == 128 + signal.SIGTERM
    assert list(root.glob("node/outputs/train_pytorch_model/checkpoints/*.json"))
    assert list(root.glob("trained/_run/checkpoints/*.json"))
    return root


@pytest.fixture
def node(ended_job: Path, output: Path) -> Path:
    """The working directory of the job that starts again, to which everything has been restored."""
    shutil.copytree(ended_job / "trained", output)
    return shutil.copytree(ended_job / "node", output.with_name("node"))


def job(node: Path, run: MlflowRun) -> list[Injection]:
    return [
        partial(as_an_azure_job, folder=str(node)),
        partial(environment, MLFLOW_RUN_ID=run.id),
    ]


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
    run: MlflowRun,
) -> None:
    if left.startswith("artifacts"):
        where = "outputs" if left == "artifacts" else "retry_001/outputs"
        shutil.copytree(node / "outputs", run.artifacts / where)
    if left != "outputs":
        shutil.rmtree(node / "outputs")
    if left != "output":
        shutil.rmtree(output)
    ended = train_again(bench, output, job(node, run))
    assert "Resumed     in epoch 2, after " in ended.stdout
    assert "The job's run in MLflow has" not in ended.stdout
    assert result_of(output) == undisturbed(1)


def test_a_job_that_finds_no_checkpoint_says_so_loudly(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, node: Path, run: MlflowRun
) -> None:
    shutil.rmtree(node / "outputs")
    shutil.rmtree(output)
    said = train_again(bench, output, job(node, run))
    warning = "Warning: The job's run in MLflow has 1 epoch already, but there is no checkpoint"
    assert (said.stdout + said.stderr).count(warning) == 1
    assert result_of(output) == undisturbed(1)


def test_a_fresh_start_leaves_the_copy_alone(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, node: Path, run: MlflowRun
) -> None:
    shutil.rmtree(node / "outputs")
    ended = bench.train(output, "--fresh", injections=job(node, run))
    assert ended.status == 0, ended
    assert "Resumed" not in ended.stdout
    assert result_of(output) == undisturbed(1)


def test_the_block_from_photographs_to_a_model_resumes_from_its_output(
    bench: Bench, output: Path
) -> None:
    node = output.with_name("node")
    node.mkdir()
    fit = [
        "fit",
        str(bench.folders / "training"),
        "--from-scratch",
        *bench.options,
        "--output",
        str(output),
    ]
    node_of_azure: list[Injection] = [*bench.easier, partial(as_an_azure_job, folder=str(node))]
    stop = partial(signal_at_step, number=4, signals=[signal.SIGTERM])
    assert bench.launch(fit, [*node_of_azure, stop]).wait().status == 128 + signal.SIGTERM
    shutil.rmtree(node / "outputs")
    ended = bench.launch(fit, node_of_azure).wait()
    assert ended.status == 0, ended
    assert "Resumed     in epoch 2, after " in ended.stdout
    assert (output / "evaluation" / "evaluation.html").exists()
    assert not (output / "_run").exists()
