"""A tracking store that fails costs a warning; a killed process leaves no half-made store."""

import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest

from tests.faults.injections import (
    environment,
    every_checkpoint_is_waited_for,
    the_tracker_closes_within,
)
from tests.faults.trials import Bench, Injection, Result, result_of
from tests.unit.tracking.test_tracker import DESCRIPTION


@pytest.mark.parametrize("is_there", [False, True], ids=["refuses", "never answers"])
def test_a_run_completes_without_its_tracking_server(
    bench: Bench, undisturbed: Callable[[int], Result], output: Path, is_there: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        if not is_there:
            server.shutdown(socket.SHUT_RDWR)
        injections: list[Injection] = [
            partial(every_checkpoint_is_waited_for),
            partial(environment, MLFLOW_TRACKING_URI=f"http://127.0.0.1:{server.getsockname()[1]}"),
            partial(the_tracker_closes_within, seconds=2.0),
        ]
        ended = bench.launch(bench.arguments(output), injections).wait()
    assert ended.statuses == [0], ended
    assert ended.stdout.count("Warning: MLflow does not have all metrics (") == 1
    assert "Traceback" not in ended.stderr
    assert result_of(output) == undisturbed(1)


OPEN_A_RUN = """
from pathlib import Path
from train_pytorch_model.tracking.mlflow_run import MlflowRun
from train_pytorch_model.tracking.tracker import RunDescription
MlflowRun(RunDescription("trained", {}), Path("mlflow_run"), 1_000)
"""


def is_half_made(database: Path) -> bool:
    """Whether MLflow is copying a table of its first version into one of a later version."""
    copies = "SELECT count(*) FROM sqlite_master WHERE name LIKE '%alembic_tmp%'"
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(database)) as connection:
        return bool(connection.execute(copies).fetchone()[0])
    return False


@pytest.mark.filterwarnings("ignore::Warning:sqlalchemy", "ignore::Warning:mlflow")  # not ours
def test_a_process_killed_while_it_creates_the_database_leaves_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import mlflow

    from train_pytorch_model.tracking.mlflow_run import MlflowRun

    database = tmp_path / "mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{database}")
    with subprocess.Popen([sys.executable, "-c", OPEN_A_RUN], cwd=tmp_path) as process:
        while not any(is_half_made(partial) for partial in tmp_path.glob("*.partial")):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert not database.exists()
    MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    assert len(mlflow.MlflowClient().search_experiments()) == 2
