"""MLflow in a separate process: what it logs, and what happens if the process hangs or dies."""

import json
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
from subprocess import PIPE

import mlflow
import pytest

from train_pytorch_model.machine.priority import NICENESS
from train_pytorch_model.machine.process_table import python_command, start_of
from train_pytorch_model.tracking import mlflow_process as module
from train_pytorch_model.tracking.mlflow_process import (
    SAVE_MODEL,
    Mlflow,
    MlflowError,
    MlflowProcess,
    mlflow_beside,
)

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

# Programs of the process: one never finishes importing MLflow, one creates its store only once a file exists.
SLOW_IMPORT = f"""
import sys, time, types
sys.meta_path.insert(0, types.SimpleNamespace(
    find_spec=lambda name, *_: time.sleep(600) if name == "mlflow" else None
))
{module.PROGRAM}
"""
SLOW_STORE = f"""
import os, time
from train_pytorch_model.tracking import mlflow_calls
make_store = mlflow_calls.make_store
def wait():
    while not os.path.exists({{!r}}):
        time.sleep(0.01)
    make_store()
mlflow_calls.make_store = wait
{module.PROGRAM}
"""

pytestmark = pytest.mark.filterwarnings("ignore::Warning:sqlalchemy", "ignore::Warning:mlflow")  # not ours


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowProcess]:
    """Shared by the tests of this module: it takes seconds of computing to start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.getbasetemp() / 'mlflow.db'}")
        process = MlflowProcess()
    yield process
    process.end()


@pytest.fixture
def deaf_server() -> Iterator[socket.socket]:
    """A server that never answers; `accept` raises at once if no client is waiting."""
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
    assert "libtorch" not in Path(f"/proc/{process.pid}/maps").read_text()  # importing it takes seconds


def test_a_deleted_run_is_replaced_by_a_new_one(process: MlflowProcess) -> None:
    deleted = log_an_epoch(process)
    assert process.call("open_run", {}, deleted, 1_000) == {
        "run_id": deleted,
        "is_ours": True,
        "epochs": [1],
    }
    mlflow.MlflowClient().delete_run(deleted)
    opened = process.call("open_run", {}, deleted, 1_000)
    assert opened["run_id"] != deleted
    assert opened["epochs"] == []


def test_errors_are_raised_in_the_caller(process: MlflowProcess) -> None:
    for calls in (Mlflow(), process):
        with pytest.raises(MlflowError, match=r"^MlflowException: Run with id=none not found"):
            calls.call("end_run", "none", "FINISHED")
        with pytest.raises(FileNotFoundError) as caught:
            calls.call(SAVE_MODEL, "/no/folder", SPEC, "")
        assert caught.value.filename == "/no/folder/model"
        with pytest.raises(MlflowError) as fault:
            calls.call(SAVE_MODEL, "/no/folder", {}, "")
        assert "Traceback" in fault.value.__notes__[0]


def test_a_database_that_cannot_be_written_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}")
    with pytest.raises(IsADirectoryError) as caught:  # MLflow itself retries for minutes
        Mlflow().call("open_run", {}, "", 1_000)
    assert caught.value.filename == str(tmp_path)


def test_a_call_that_hangs_does_not_block_others(
    monkeypatch: pytest.MonkeyPatch, deaf_server: socket.socket, tmp_path: Path
) -> None:
    """Nor is a server contacted before the first call."""
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
        with pytest.raises(FileNotFoundError):  # this returns once MLflow is loaded
            calls.call(SAVE_MODEL, str(tmp_path), SPEC, "")
        with pytest.raises(BlockingIOError):
            deaf_server.accept()
        thread = threading.Thread(target=hang)
        thread.start()
        with pytest.raises(FileNotFoundError):
            calls.call(SAVE_MODEL, str(tmp_path), SPEC, "")
        assert thread.is_alive()
    thread.join(60)
    assert failures == ["the training is over"]


def test_a_store_that_hangs_does_not_block_saving_a_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that is creating a store finishes it, even when told to end."""
    proceed, database = tmp_path / "proceed", tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    monkeypatch.setattr(module, "PROGRAM", SLOW_STORE.format(str(proceed)))
    monkeypatch.setattr(module, "ENDING_S", 0.0)
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        with pytest.raises(FileNotFoundError):
            calls.call(SAVE_MODEL, "/no/folder", SPEC, "")
        priorities = []
        for thread in Path(f"/proc/{calls.pid}/task").iterdir():
            with suppress(ProcessLookupError):  # a thread that has replied
                priorities.append(os.getpriority(os.PRIO_PROCESS, int(thread.name)))
        assert max(priorities) >= NICENESS
        os.kill(calls.pid, signal.SIGTERM)
    assert start_of(calls.pid) is not None
    proceed.touch()
    wait_for_end(calls.pid)
    assert mlflow.MlflowClient().search_experiments()


def test_readers_of_the_output_do_not_wait_for_a_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    proceed = tmp_path / "proceed"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    command = python_command(SLOW_STORE.format(str(proceed)))
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as started:
        assert started.stdin
        assert started.stdout
        assert started.stderr
        print(json.dumps([0, SAVE_MODEL, ["/no/folder", SPEC, ""]]), file=started.stdin, flush=True)
        assert '"os_error"' in started.stdout.readline()  # from here on it creates its store
        started.stdin.close()
        assert started.stderr.read() == ""
        assert started.poll() is None
        proceed.touch()
    assert started.returncode == 0


def test_half_a_request_ends_the_process_silently() -> None:
    """A training process leaves half a request if it is killed while writing one."""
    ended = subprocess.run(
        python_command(SLOW_IMPORT), input='[0, "att', capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_stopped_process_does_not_block_saving_a_model(
    process: MlflowProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SAVING_S", 1.0)
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        os.kill(calls.pid, signal.SIGSTOP)
        report = ("attach", log_an_epoch(process), "x" * 300_000, "x")  # more than a pipe holds
        attach = threading.Thread(target=calls.call, args=report)
        attach.start()
        with pytest.raises(FileNotFoundError):
            calls.call(SAVE_MODEL, "/no/folder", SPEC, "")
        attach.join(60)
        assert not attach.is_alive()
        assert start_of(calls.pid) is None


def test_output_before_the_program_starts_is_not_taken_for_a_reply(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('grüße'); print(42); print([7, {}])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with mlflow_beside() as calls:
        assert calls.call("epochs_of", "none") == []


def test_a_process_that_still_imports_mlflow_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told to end while it still imports MLflow, the process ends at once."""
    monkeypatch.setattr(module, "PROGRAM", SLOW_IMPORT)
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
    wait_for_end(calls.pid)


def test_calls_that_a_dead_process_left_undone_are_made_here() -> None:
    with mlflow_beside() as calls:
        assert isinstance(calls, MlflowProcess)
        os.kill(calls.pid, signal.SIGSTOP)
        threading.Timer(0.2, os.kill, (calls.pid, signal.SIGKILL)).start()
        run_id = log_an_epoch(calls)
        assert start_of(calls.pid) is None
        assert calls.call("epochs_of", run_id) == [1]


def test_calls_are_made_here_if_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError

    monkeypatch.setattr(subprocess, "Popen", refuse)
    with mlflow_beside() as calls:
        assert type(calls) is Mlflow
        assert calls.call("epochs_of", log_an_epoch(calls)) == [1]


def test_the_store_is_complete_however_soon_the_process_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
