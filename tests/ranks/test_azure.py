"""A job on one node of Azure ML: its environment variables, MLflow run, outputs/ and logs/."""

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import mlflow
import pytest

from tests.azure_job import mpi_job, pytorch_job
from tests.launchers import slurm_step
from tests.ports import free_port
from tests.programs.program import assert_refused, run_program, train_arguments
from tests.tracking_server import Door, tracking_server
from tests.zygote.stand_in import stand_in
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.tracking.mlflow_run import EXPERIMENT
from train_pytorch_model.tracking.tracker import MlflowTracker

HERE = "127.0.0.1"
METRICS = {
    "Train images per second",
    "Train loss",
    "Train error",
    "Valid loss",
    "Top 1 accuracy",
    "Top 5 accuracy",
    "Learning rate",
}
EPOCHS = ("--epochs", "2")
PARAMS = TrainConfig(epochs=2, batch_size=4).as_params()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """MLflow's tracking server, started once."""
    with tracking_server(tmp_path_factory.mktemp("mlflow")) as door:
        yield door


@pytest.fixture
def run(server: Door) -> mlflow.entities.Run:
    """An active MLflow run, created as Azure ML does before a job's processes start."""
    server.open_again()
    client = mlflow.MlflowClient(server.server_behind)
    experiment = client.get_experiment_by_name(EXPERIMENT)
    return client.create_run(
        experiment.experiment_id if experiment else client.create_experiment(EXPERIMENT)
    )


def variables(server: Door, run: mlflow.entities.Run) -> dict[str, str]:
    """The variables that describe their run to a job's processes."""
    return {
        "AZUREML_RUN_ID": run.info.run_id,
        "MLFLOW_RUN_ID": run.info.run_id,
        "MLFLOW_EXPERIMENT_ID": run.info.experiment_id,
        "MLFLOW_EXPERIMENT_NAME": EXPERIMENT,
        "MLFLOW_TRACKING_URI": server.url,
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",  # the machine may be busy with other tests
    }


def start(
    environments: Sequence[Mapping[str, str]], folder: Path, *arguments: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run one process per environment, in one working directory, as on one node."""
    processes = [
        subprocess.Popen(
            [stand_in(), "-m", "train_pytorch_model.run", *arguments],
            cwd=folder,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": ""} | dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]
    said = [process.communicate() for process in processes]
    return [
        subprocess.CompletedProcess(process.args, process.returncode, *texts)
        for process, texts in zip(processes, said, strict=True)
    ]


def logged(server: Door, run: mlflow.entities.Run) -> dict[str, list[int]]:
    """Metric of the epochs → those at which the run has a value."""
    client = mlflow.MlflowClient(server.server_behind)
    names = METRICS & client.get_run(run.info.run_id).data.metrics.keys()
    return {
        name: [metric.step for metric in client.get_metric_history(run.info.run_id, name)]
        for name in names
    }


def test_two_processes_of_a_job_write_one_run_one_model_and_two_logs(
    server: Door, run: mlflow.entities.Run, folders: Path, small_network: Path, tmp_path: Path
) -> None:
    output = tmp_path / "trained"
    arguments = train_arguments(folders, small_network, output, *EPOCHS)[1:]
    port = {"MASTER_PORT": str(free_port())}
    node = tmp_path / "node"
    node.mkdir()
    ended = start(
        [process | port | variables(server, run) for process in pytorch_job(1, 2, HERE)],
        node,
        *arguments,
    )

    assert [process.returncode for process in ended] == [0, 0], ended
    assert (
        "Azure ML has started 2 processes per node, on 1 node; no more are started."
        in ended[0].stdout
    )
    assert "8 images per step = batch size 4 x 2 processes" in ended[0].stdout
    said = "".join(process.stdout + process.stderr for process in ended)
    assert said.count("Warning") == 1  # about too few images
    assert (
        "Train PyTorch Model" not in ended[1].stdout
    )  # older torch versions print gloo's messages
    assert (output / "_meta.yaml").is_file()
    for rank in (0, 1):
        assert "Epoch 2/2: " in (node / "logs" / f"rank_{rank}.log").read_text()
    assert [path for path in (node / "outputs").rglob("*") if path.is_file()] == []

    assert logged(server, run) == {name: [1, 2] for name in METRICS}
    client = mlflow.MlflowClient(server.server_behind)
    now = client.get_run(run.info.run_id)
    assert {key: str(value) for key, value in PARAMS.items()}.items() <= now.data.params.items()
    assert now.info.status == "RUNNING"  # the job ends its run
    assert {file.path for file in client.list_artifacts(run.info.run_id)} >= {"report.html"}
    # One batch each for parameters, epochs and calibration, all from rank 0; no call that Azure
    # lacks.
    assert server.calls.count("POST runs/log-batch") == 4
    assert not [
        call for call in server.calls if re.search("logged-models|runs/create|runs/update", call)
    ]


def enter_job(
    monkeypatch: pytest.MonkeyPatch, folder: Path, environment: Mapping[str, str]
) -> None:
    """Make this process part of a job."""
    for name, value in {"CUDA_VISIBLE_DEVICES": "", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(folder)


def run_in_job(
    server: Door,
    run: mlflow.entities.Run,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *arguments: str,
) -> str:
    """Train in this process as the only one of a job; return its output."""
    enter_job(monkeypatch, folder, pytorch_job(1, 1, HERE)[0] | variables(server, run))
    ended = run_program(*arguments)
    assert ended.status == 0, ended.stderr
    assert (
        "Azure ML has started 1 process per node, on 1 node; no more are started." in ended.stdout
    )
    return ended.stdout


def test_a_server_that_answers_after_the_last_epoch_still_gets_all_metrics(
    server: Door,
    run: mlflow.entities.Run,
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The epochs do not wait for the server, which only says before that the job has not trained
    yet.
    """
    kept = tmp_path / "outputs" / "train_pytorch_model" / "metrics.jsonl"
    server.opens = lambda: (
        not server.calls or (kept.exists() and len(kept.read_text().splitlines()) == 2)
    )
    arguments = train_arguments(folders, small_network, tmp_path / "trained", *EPOCHS)
    assert (
        run_in_job(server, run, monkeypatch, tmp_path, *arguments).count("Warning") == 1
    )  # on few images
    assert logged(server, run) == {name: [1, 2] for name in METRICS}


def test_a_server_that_dies_midway_costs_a_warning(
    server: Door,
    run: mlflow.entities.Run,
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def falls_shut_after_the_first_epoch() -> bool:
        server.is_shut = server.calls.count("POST runs/log-batch") == 2
        return True

    server.opens = falls_shut_after_the_first_epoch
    arguments = train_arguments(folders, small_network, tmp_path / "trained", *EPOCHS)
    said = run_in_job(server, run, monkeypatch, tmp_path, *arguments)
    assert said.count("Warning: MLflow does not have all metrics (") == 1
    assert said.count("Warning: ") == 2  # and one about too few images
    assert logged(server, run) == {name: [1] for name in METRICS}
    records = (tmp_path / "trained" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(record)["epoch"] for record in records] == [1, 2]


def test_a_job_that_is_restarted_sends_no_epoch_twice_and_changes_no_parameter(
    server: Door, run: mlflow.entities.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_job(monkeypatch, tmp_path, variables(server, run))
    for epochs in (1, 3):
        params = {**PARAMS, "processes": epochs}  # the restart has other machines
        with MlflowTracker(RunDescription("trained", params), tmp_path / "mlflow_run") as tracker:
            for epoch in range(1, epochs + 1):
                tracker.log({"epoch": epoch, "step": 4 * epoch, "Learning rate": 0.1 / epoch})
    assert logged(server, run) == {"Learning rate": [1, 2, 3]}
    told = mlflow.MlflowClient(server.server_behind).get_run(run.info.run_id).data.params
    assert told["processes"] == "1"


@pytest.mark.parametrize(
    ("job", "note"),
    [
        (mpi_job, "MPI has started 2 processes, 2 on this node."),
        (slurm_step, "Slurm has started 2 processes, 2 on this node."),
    ],
)
def test_the_processes_of_one_node_form_one_world(
    job: Callable[[int, int, str], list[dict[str, str]]],
    note: str,
    folders: Path,
    small_network: Path,
    tmp_path: Path,
) -> None:
    port = {"MASTER_PORT": str(free_port()), "AZUREML_RUN_ID": "a-run"}
    arguments = train_arguments(folders, small_network, tmp_path / "trained", "--dry-run")[1:]
    ended = start([process | port for process in job(1, 2, HERE)], tmp_path, *arguments)
    assert {process.returncode for process in ended} == {0}, ended
    assert note in ended[0].stdout
    assert "8 images per step = batch size 4 x 2 processes" in ended[0].stdout
    assert "".join(process.stdout for process in ended).count("Train PyTorch Model ") == 1


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"AZUREML_NODE_COUNT": "2"},
            "each node would train alone and write the same output. Add `distribution: {type:"
            " pytorch}`",
        ),
        (
            {
                name: value
                for name, value in mpi_job(2, 1, HERE)[0].items()
                if name != "AZ_BATCH_MASTER_NODE"
            },
            "MPI has started 2 processes on several nodes, and none of AZ_BATCH_MASTER_NODE,",
        ),
        (
            pytorch_job(3, 1, HERE)[0] | {"AZUREML_NODE_COUNT": "2"},
            "WORLD_SIZE 3 is not a multiple of",
        ),
    ],
    ids=["no distribution", "MPI without a place to meet", "uneven nodes"],
)
def test_a_launch_that_cannot_form_one_world_is_refused(
    environment: Mapping[str, str],
    message: str,
    folders: Path,
    small_network: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter_job(monkeypatch, tmp_path, {**environment, "AZUREML_RUN_ID": "a-run"})
    ended = run_program(*train_arguments(folders, small_network, tmp_path / "trained"))
    assert_refused(ended, 2, "LaunchError: ", message)
    assert (
        json.loads((tmp_path / "outputs" / "error_info.json").read_text())["class"] == "LaunchError"
    )
    assert not (tmp_path / "trained").exists()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            (
                *("train", "--untrained-model=none", "--training-dataset=none"),
                *("--validation-dataset=none", "--trained-model=none", "--learning-rate=nan"),
            ),
            "ParameterError",
        ),
        (
            ("score", "--trained-model=none", "--dataset=none", "--scored-dataset=scores"),
            "InvalidModelDirectoryError",
        ),
    ],
)
def test_every_failure_of_a_job_is_recorded_in_its_outputs(
    arguments: tuple[str, ...], error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_job(monkeypatch, tmp_path, pytorch_job(1, 1, HERE)[0] | {"AZUREML_RUN_ID": "a-run"})
    ended = run_program(*arguments)
    assert ended.stderr.startswith(f"{error}: ")
    told = json.loads((tmp_path / "outputs" / "error_info.json").read_text())
    assert (told["class"], told["exit_status"]) == (error, ended.status)


def test_only_the_main_process_removes_the_error_info_of_an_earlier_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_job(monkeypatch, tmp_path, pytorch_job(1, 1, HERE)[0] | {"AZUREML_RUN_ID": "a-run"})
    told = tmp_path / "outputs" / "error_info.json"
    told.parent.mkdir()
    told.write_text("{}")
    for rank in (1, 0):
        monkeypatch.setenv("RANK", str(rank))
        assert run_program("init-model", "--help").status == 0
        assert told.exists()
        assert (
            run_program("init-model", "--architecture=resnet18", f"--output=of-{rank}").status == 0
        )
        assert told.exists() == (rank == 1)


def test_the_log_of_a_failed_process_ends_with_its_error(
    folders: Path, small_network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    enter_job(monkeypatch, tmp_path, pytorch_job(1, 1, HERE)[0] | {"AZUREML_RUN_ID": "a-run"})
    ended = run_program(
        *train_arguments(folders, small_network, tmp_path / "trained", "--learning-rate", "1e30")
    )
    assert_refused(ended, 4, "TrainingError: ")
    log = (tmp_path / "logs" / "rank_0.log").read_text()
    assert log.endswith(f" {ended.stderr}")
