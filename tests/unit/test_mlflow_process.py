"""MLflow in a process of its own: what it does there, and what happens when the process does not."""

import os
import signal
import socket
import sqlite3
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import mlflow
import pytest

from train_pytorch_model import mlflow_process as module
from train_pytorch_model.mlflow_process import Mlflow, MlflowError, MlflowProcess, mlflow_beside
from train_pytorch_model.process_table import start_of

SPEC = {
    "architecture": "resnet18",
    "option": False,
    "categories": ["a", "b"],
    "height": 32,
    "width": 32,
    "crop_fraction": 1.0,
    "mean": [0.5, 0.5, 0.5],
    "std": [0.5, 0.5, 0.5],
}

pytestmark = pytest.mark.filterwarnings("ignore::Warning:sqlalchemy", "ignore::Warning:mlflow")  # their own


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    """It takes seconds of computing to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.getbasetemp() / 'mlflow.db'}")
        process = MlflowProcess()
    yield process
    process.end()


@pytest.fixture
def deaf_server() -> Iterator[socket.socket]:
    """It never answers; it is asked to take calls without waiting for one."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


def log_an_epoch(calls: Mlflow) -> str:
    """A run of one epoch; returns its id."""
    run_id = str(calls.call("open_run", {"epochs": "1"}, "", 1_000)["run_id"])
    calls.call("log_epoch", run_id, 1, 2_000, {"Learning rate": 0.25, "Train loss": float("nan")})
    calls.call("attach", run_id, "größer", "a file.txt")
    calls.call("end_run", run_id, "FINISHED")
    return run_id


def is_half_made(database: Path) -> bool:
    """Whether MLflow is copying a table of its first version into one of a later version."""
    copies = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%alembic_tmp%'"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection:
        return bool(connection.execute(copies).fetchone()[0])
    return False


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 60
    while start_of(pid) is not None:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_is_logged(process: MlflowProcess) -> None:
    run_id = log_an_epoch(process)
    assert process.call("epochs_of", run_id) == [1]
    run = mlflow.MlflowClient().get_run(run_id)
    assert (run.info.status, run.info.start_time) == ("FINISHED", 1_000)
    assert run.data.params == {"epochs": "1"}
    assert run.data.metrics["Learning rate"] == 0.25
    file = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="a file.txt")
    assert Path(file).read_text(encoding="utf-8") == "größer"


def test_failures_come_back(process: MlflowProcess) -> None:
    for calls in (Mlflow(), process):
        with pytest.raises(MlflowError, match=r"^MlflowException: Run with id=none not found$"):
            calls.call("end_run", "none", "FINISHED")
        with pytest.raises(FileNotFoundError) as caught:
            calls.call("save_model", "/no/folder", SPEC, "")
        assert caught.value.filename == "/no/folder/model"


def test_a_call_that_hangs_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, deaf_server: socket.socket, tmp_path: Path
) -> None:
    """And a server is not asked anything before the first call."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{deaf_server.getsockname()[1]}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "120")
    failures: list[str] = []

    def hang() -> None:
        try:
            calls.call("epochs_of", "none")
        except MlflowError as error:
            failures.append(str(error))

    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        with pytest.raises(FileNotFoundError):  # by then it is loaded
            calls.call("save_model", str(tmp_path), SPEC, "")
        with pytest.raises(BlockingIOError):
            deaf_server.accept()
        thread = threading.Thread(target=hang)
        thread.start()
        with pytest.raises(FileNotFoundError):
            calls.call("save_model", str(tmp_path), SPEC, "")
        assert thread.is_alive()
    thread.join(60)
    assert failures == ["the training is over"]


def test_what_a_process_that_dies_has_left_undone_is_done_here() -> None:
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        os.kill(calls.pid, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (calls.pid, signal.SIGKILL)).start()
        run_id = log_an_epoch(calls)
        assert start_of(calls.pid) is None
        assert calls.call("epochs_of", run_id) == [1]


def test_it_is_done_here_where_there_can_be_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with mlflow_beside() as calls:
        assert type(calls) is Mlflow
        assert calls.call("epochs_of", log_an_epoch(calls)) == [1]


def test_its_store_is_whole_however_soon_it_ends(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.setattr(module, "ENDING_S", 0.0)
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        deadline = time.monotonic() + 60
        while not (database.exists() and is_half_made(database)):
            assert time.monotonic() < deadline
            time.sleep(0.001)
    wait_for_end(calls.pid)
    assert mlflow.MlflowClient().search_experiments()
