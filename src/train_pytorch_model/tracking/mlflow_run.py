"""A run in MLflow's store, Azure's, an earlier start's or a new one; and the trained directory as a
model.

Importing this module imports mlflow, which takes a second of computing: the tracker's thread does
so first.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from train_pytorch_model.formats.reading import MalformedFileError, read_bounded

if TYPE_CHECKING:
    from train_pytorch_model.tracking.description import RunDescription


EXPERIMENT = "train_pytorch_model"
UI = "http://127.0.0.1:5000"  # where `mlflow ui` listens by default
MAX_DIGEST = 36  # characters, MLflow's limit
MAX_RUN_ID = 1000  # bytes
LAST_METRIC = "Learning rate"  # one that every epoch logs


class MlflowRun:
    """A run to log to, and the epochs it has. Every method may raise anything."""

    def __init__(self, description: "RunDescription", run_id_path: Path, started_ms: int) -> None:
        """Open the run that the environment or an earlier start, in `run_id_path`, names; else
        create one.
        """
        _prepare_database()
        self._client = mlflow.MlflowClient()
        self._run_id = os.environ.get("MLFLOW_RUN_ID", "")
        self._is_ours = not self._run_id
        # There is no earlier one, or it is in another store, or was deleted; what else fails is
        # tried again.
        with suppress(MalformedFileError, UnicodeDecodeError, mlflow.MlflowException):
            if self._is_ours and (
                earlier := read_bounded(run_id_path, MAX_RUN_ID).decode().strip()
            ):
                self._client.update_run(earlier, "RUNNING")
                self._run_id = earlier
        if not self._run_id:
            name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
            experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID")
            if experiment := self._client.get_experiment_by_name(name):
                experiment_id = experiment_id or experiment.experiment_id
            if (
                not experiment_id
            ):  # MLflow's default for runs in a local database is the working directory
                database = _local_database()
                beside = (
                    (database.parent / "mlruns").as_uri() if database else None
                )  # a server has its own
                experiment_id = self._client.create_experiment(name, artifact_location=beside)
            run = self._client.create_run(
                experiment_id, start_time=started_ms, run_name=description.name
            )
            self._run_id = str(run.info.run_id)
        with suppress(OSError):
            run_id_path.write_text(self._run_id)
        self._describe(description)
        self.query_epochs()

    @property
    def where(self) -> str:
        """The address of the run's page, for the log; empty if MLflow does not know it, as in
        Azure.
        """
        store, page = (
            mlflow.get_tracking_uri(),
            f"#/experiments/{self._experiment_id}/runs/{self._run_id}",
        )
        if store.startswith(("http://", "https://")):
            return f"The run in MLflow:\n  {store.rstrip('/')}/{page}"
        if store.startswith(("sqlite:", "file:")):
            return f"The run in MLflow, once `mlflow ui` is running:\n  {UI}/{page}"
        return ""

    def query_epochs(self) -> None:
        """Ask the store which epochs the run has: a call that failed may have arrived all the same."""
        logged = self._client.get_metric_history(self._run_id, LAST_METRIC)
        self._epochs = {metric.step for metric in logged}

    def log_epoch(self, number: int, ended_ms: int, metrics: Mapping[str, float]) -> None:
        """Log the metrics of an epoch, with its number as the step, unless the run has them."""
        if number not in self._epochs:
            self.log_metrics(metrics, ended_ms, number)
            self._epochs.add(number)

    def log_metrics(self, metrics: Mapping[str, float], at_ms: int, step: int = 0) -> None:
        """Log metrics, by default of the whole run; of those that it has, a value more."""
        batch = [Metric(name, value, at_ms, step) for name, value in metrics.items()]
        self._client.log_batch(self._run_id, metrics=batch)

    def attach(self, name: str, text: str) -> None:
        """Log a text file, replacing one of the same name."""
        self._client.log_text(self._run_id, text, name)

    def end(self, status: str) -> None:
        """End a run of our own with this status; Azure ends its own."""
        if self._is_ours:
            self._client.set_terminated(self._run_id, status)

    def _describe(self, description: "RunDescription") -> None:
        """Log parameters that the run lacks: none can be changed, and a resumed job may have other
        values.
        """
        run = self._client.get_run(self._run_id)
        self._experiment_id, known = run.info.experiment_id, run.data.params
        params = [
            Param(name, str(value))
            for name, value in description.params.items()
            if name not in known
        ]
        tags = [RunTag(name, value) for name, value in description.tags.items()]
        self._client.log_batch(self._run_id, params=params, tags=tags)
        inputs = []
        for context, images in description.data_sets.items():
            name, sha256 = images.name, images.fingerprint()
            profile = json.dumps({"images": len(images), "sha256": sha256})
            source = json.dumps({"uri": name})
            dataset = Dataset(name, sha256[:MAX_DIGEST], "local", source, profile=profile)
            inputs.append(DatasetInput(dataset, tags=[InputTag(MLFLOW_DATASET_CONTEXT, context)]))
        with suppress(mlflow.MlflowException):  # a server that does not know of data sets
            self._client.log_inputs(self._run_id, datasets=inputs)


def _prepare_database() -> None:
    """Create a local database whole: one half made when killed cannot be repaired.

    Raises `OSError`.
    """
    database = _local_database()
    if database is None:
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    if database.exists():
        with database.open("ab"):  # fails at once: MLflow would retry for minutes
            return
    partial = database.with_name(f"{database.name}.{os.getpid()}.partial")
    partial.touch()
    try:
        mlflow.MlflowClient(f"sqlite:///{partial}").get_experiment_by_name(
            EXPERIMENT
        )  # takes two seconds
        with suppress(
            OSError
        ):  # another run was faster, or the storage has no links: MLflow creates it
            database.hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)


def _local_database() -> Path | None:
    """The file that is MLflow's store; None for any other store."""
    scheme, _, path = mlflow.get_tracking_uri().partition(":///")
    return Path(path).absolute() if scheme == "sqlite" and path else None
