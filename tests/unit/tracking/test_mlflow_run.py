"""Runs in MLflow's local database, which outlives what happens while it is made or written."""

import errno
import json
from pathlib import Path

import mlflow
import pytest
from tests.logs import warnings_in
from tests.unit.tracking.test_tracker import DESCRIPTION, IMAGES, record, tracking

from train_pytorch_model.tracking.mlflow_run import MlflowRun

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:sqlalchemy", "ignore::Warning:mlflow"
)  # not ours


def test_a_local_database_has_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with tracking(tmp_path) as tracker:
        tracker.log(record(1) | {"Train loss": float("nan")})
        tracker.conclude({}, {"a file.txt": "größer"})
    assert warnings_in(caplog) == []
    run_id = (tmp_path / "mlflow_run").read_text()
    run = mlflow.MlflowClient().get_run(run_id)
    assert (run.info.status, run.data.params) == ("FINISHED", {"epochs": "2"})
    assert run.data.metrics["Learning rate"] == 0.1
    assert run.info.run_name == "trained"
    assert DESCRIPTION.tags.items() <= run.data.tags.items()
    assert run.inputs is not None
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.tags[0].value) == ("flowers", "training")
    assert json.loads(used.dataset.profile or "") == {"images": 7, "sha256": IMAGES.fingerprint()}
    assert f"/#/experiments/{run.info.experiment_id}/runs/{run_id}" in caplog.text
    file = mlflow.artifacts.download_artifacts(run_id=run_id, artifact_path="a file.txt")
    assert Path(file).read_text(encoding="utf-8") == "größer"


def test_a_deleted_run_is_replaced_by_a_new_one(tmp_path: Path) -> None:
    for _ in range(2):
        MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
        run_id = (tmp_path / "mlflow_run").read_text()
        mlflow.MlflowClient().get_run(run_id)
    mlflow.MlflowClient().delete_run(run_id)
    MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    assert (tmp_path / "mlflow_run").read_text() != run_id


def test_a_store_that_fails_once_keeps_the_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    run_id = (tmp_path / "mlflow_run").read_text()

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as once:
        once.setattr(mlflow.MlflowClient, "update_run", fail)
        with pytest.raises(OSError, match="Input/output error"):  # the tracker tries again
            MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    assert (tmp_path / "mlflow_run").read_text() == run_id


def test_a_database_that_cannot_be_written_fails_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}")
    with pytest.raises(IsADirectoryError) as caught:  # MLflow itself retries for minutes
        MlflowRun(DESCRIPTION, tmp_path / "mlflow_run", 1_000)
    assert caught.value.filename == str(tmp_path)
