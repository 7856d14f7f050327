"""A run in MLflow's store: Azure's, an earlier start's or a new one.

Importing this module imports mlflow, which takes a second of computing: the tracker's thread does
so first.
"""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import mlflow
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from train_pytorch_model.formats.image_directory import ImageDirectory
from train_pytorch_model.formats.reading import MalformedFileError, read_bounded
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.tracking.mlflow_logs import hush_mlflow

EXPERIMENT = "train_pytorch_model"
UI = "http://127.0.0.1:5000"  # where `mlflow ui` listens by default
MAX_DIGEST = 36  # characters, MLflow's limit
MAX_RUN_ID = 1000  # bytes
LAST_METRIC = "Learning rate"  # one that every epoch logs


class MlflowRun:
    """A run to log to, and the epochs it has. Every method may raise anything."""

    def __init__(self, description: RunDescription, run_id_path: Path, started_ms: int) -> None:
        """Open the run that the environment names, or an earlier start of ours; else create one.

        The latter's is named by the file `run_id_path`, which is written.
        """
        hush_mlflow()
        _prepare_database()
        self._client = mlflow.MlflowClient()
        self._run_id = os.environ.get("MLFLOW_RUN_ID", "")
        self._is_ours = not self._run_id
        if self._is_ours:
            earlier = self._resume(run_id_path)
            self._run_id = earlier or self._create(description.name, started_ms)
        with suppress(OSError):
            run_id_path.write_text(self._run_id)
        self._describe(description)
        self.query_epochs()

    def _resume(self, run_id_path: Path) -> str:
        """Return the id of the run of an earlier start, which runs again; empty without one."""
        # There is no earlier one, or it is in another store, or was deleted; what else fails is
        # tried again.
        with suppress(MalformedFileError, UnicodeDecodeError, mlflow.MlflowException):
            run_id = read_bounded(run_id_path, MAX_RUN_ID).decode().strip()
            if run_id:
                self._client.update_run(run_id, "RUNNING")
            return run_id
        return ""

    def _create(self, name: str, started_ms: int) -> str:
        """Create a run of this name, and return its id."""
        run = self._client.create_run(self._experiment(), start_time=started_ms, run_name=name)
        return str(run.info.run_id)

    def _experiment(self) -> str:
        """Return the id of the experiment that the environment names, or of ours, creating it."""
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID")
        experiment = self._client.get_experiment_by_name(name)
        if experiment_id:
            return experiment_id
        if experiment:
            return str(experiment.experiment_id)
        # MLflow's default for runs in a local database is the working directory. A server has an
        # artifact store.
        database = _local_database()
        artifacts = (database.parent / "mlruns").as_uri() if database else None
        return self._client.create_experiment(name, artifact_location=artifacts)

    @property
    def page(self) -> str:
        """Return where the run's page is, for the log; empty if that is unknown, as in Azure."""
        store = mlflow.get_tracking_uri()
        page = f"#/experiments/{self._experiment_id}/runs/{self._run_id}"
        if store.startswith(("http://", "https://")):
            return f"The run in MLflow:\n  {store.rstrip('/')}/{page}"
        if store.startswith(("sqlite:", "file:")):
            return f"The run in MLflow, once `mlflow ui` is running:\n  {UI}/{page}"
        return ""

    def query_epochs(self) -> None:
        """Ask the store which epochs the run has: a call that failed may have arrived anyway."""
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

    def _describe(self, description: RunDescription) -> None:
        """Log tags, data sets, and parameters that the run lacks.

        No parameter can be changed, and a resumed job may have other values.
        """
        run = self._client.get_run(self._run_id)
        self._experiment_id = run.info.experiment_id
        params = [
            Param(name, str(value))
            for name, value in description.params.items()
            if name not in run.data.params
        ]
        tags = [RunTag(name, value) for name, value in description.tags.items()]
        self._client.log_batch(self._run_id, params=params, tags=tags)
        inputs = [_input_of(context, images) for context, images in description.data_sets.items()]
        with suppress(mlflow.MlflowException):  # a server that does not know of data sets
            self._client.log_inputs(self._run_id, datasets=inputs)


def _input_of(context: str, images: ImageDirectory) -> DatasetInput:
    """Return a data set as MLflow knows it; `context` is what it was used for."""
    sha256 = images.fingerprint()
    dataset = Dataset(
        name=images.name,
        digest=sha256[:MAX_DIGEST],
        source_type="local",
        source=json.dumps({"uri": images.name}),
        profile=json.dumps({"images": len(images), "sha256": sha256}),
    )
    return DatasetInput(dataset, tags=[InputTag(MLFLOW_DATASET_CONTEXT, context)])


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
        # Creates the tables, which takes two seconds.
        mlflow.MlflowClient(f"sqlite:///{partial}").get_experiment_by_name(EXPERIMENT)
        # Another run was faster, or the storage has no links: then MLflow creates it.
        with suppress(OSError):
            database.hardlink_to(partial)
    finally:
        partial.unlink(missing_ok=True)


def _local_database() -> Path | None:
    """Return the file that is MLflow's store; None for any other store."""
    scheme, _, path = mlflow.get_tracking_uri().partition(":///")
    return Path(path).absolute() if scheme == "sqlite" and path else None
