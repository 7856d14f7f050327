"""Calls to MLflow: for a run, its metrics and files, and to save the trained directory as an MLflow model.

The only module that imports mlflow. It does not import torch, which takes as long. Arguments and results are
JSON values, because most calls come from another process (`mlflow_process`).
"""

import logging
import os
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import mlflow
import pandas as pd
from mlflow.entities import Metric, Param
from mlflow.models import Model, ModelSignature
from mlflow.types import ColSpec, Schema

from train_pytorch_model.image_classifier import scored_columns
from train_pytorch_model.image_classifier.scored_columns import IMAGE_COLUMN, LABEL_COLUMN, PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.spec import ClassifierSpec

EXPERIMENT = "train_pytorch_model"
LAST_METRIC = "Learning rate"  # one that every epoch logs
SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow")

for name in ("mlflow", "alembic"):  # a new store logs every migration
    logging.getLogger(name).setLevel(logging.WARNING)


def make_store() -> None:
    """Create the tables of a local database, which takes two seconds; a server has its own."""
    if _database(mlflow.get_tracking_uri()):
        _client().get_experiment_by_name(EXPERIMENT)


def open_run(params: Mapping[str, Any], begun: str, begun_ms: int) -> dict[str, Any]:
    """Open the run that the environment or an earlier start, `begun`, names; otherwise create one.

    Returns its `run_id`, whether it `is_ours` to end, and the `epochs` it already has. May raise anything, as
    may all functions here.
    """
    client = _client()
    named = os.environ.get("MLFLOW_RUN_ID")
    if begun and not named:
        with suppress(mlflow.MlflowException):  # it is in another store, or was deleted
            client.update_run(begun, "RUNNING")
            return {"run_id": begun, "is_ours": True, "epochs": epochs_of(begun)}
    run_id = named or _create_run(client, begun_ms)
    _log_params(client, run_id, params)
    return {"run_id": run_id, "is_ours": not named, "epochs": epochs_of(named) if named else []}


def epochs_of(run_id: str) -> list[int]:
    """The numbers of the epochs logged to a run."""
    return [metric.step for metric in mlflow.MlflowClient().get_metric_history(run_id, LAST_METRIC)]


def log_epoch(run_id: str, number: int, ended_ms: int, metrics: Mapping[str, float]) -> None:
    """Log the metrics of an epoch, with its number as the step."""
    batch = [Metric(name, value, ended_ms, number) for name, value in metrics.items()]
    mlflow.MlflowClient().log_batch(run_id, metrics=batch)


def attach(run_id: str, text: str, name: str) -> None:
    """Log a text file to a run, replacing one of the same name."""
    mlflow.MlflowClient().log_text(run_id, text, name)


def end_run(run_id: str, status: str) -> None:
    """End a run with this status."""
    mlflow.MlflowClient().set_terminated(run_id, status)


def _create_run(client: mlflow.MlflowClient, begun_ms: int) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
    experiment = client.get_experiment_by_name(name)
    experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID") or (
        experiment.experiment_id
        if experiment
        else client.create_experiment(name, artifact_location=_beside_database(client.tracking_uri))
    )
    return str(client.create_run(experiment_id, start_time=begun_ms).info.run_id)


def _log_params(client: mlflow.MlflowClient, run_id: str, params: Mapping[str, Any]) -> None:
    """Log parameters that the run lacks: none can be changed, and a resumed job may have other values."""
    known = client.get_run(run_id).data.params
    missing = [Param(name, str(value)) for name, value in params.items() if name not in known]
    client.log_batch(run_id, params=missing)


def _beside_database(store: str) -> str | None:
    """The artifact location of runs in a local database; MLflow would use the working directory."""
    database = _database(store)
    return (database.parent / "mlruns").as_uri() if database else None  # a server has its own


def _database(store: str) -> Path | None:
    """The file of a local database; None for any other store."""
    scheme, _, path = store.partition(":///")
    return Path(path).absolute() if scheme == "sqlite" and path else None


def _client() -> mlflow.MlflowClient:
    """Raises `OSError` at once if a local database is not writable: MLflow would retry for minutes."""
    if database := _database(mlflow.get_tracking_uri()):
        database.parent.mkdir(parents=True, exist_ok=True)
        with database.open("ab"):
            pass
    return mlflow.MlflowClient()


def save_model(folder: str, model_config: dict[str, Any], example: str) -> None:
    """Make the trained directory `folder`, which already holds the weights, an MLflow model too.

    MLflow only writes into an empty folder, so it writes elsewhere and its files are copied here; the weights
    stay in place and `MLmodel` points to them. `example` is a base64-encoded image file.
    """
    root, spec = Path(folder), ClassifierSpec.from_mapping(model_config)
    weights = root / "model"
    outputs = [ColSpec("double", PROBABILITY_PREFIX + name) for name in spec.categories]
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's, about its own dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module="image_classifier.serving",
            code_paths=[str(Path(scored_columns.__file__).parent)],
            data_path=str(placeholder),
            model_config=model_config,
            pip_requirements=[f"{name}=={_public_version(name)}" for name in SERVING_PACKAGES],
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", IMAGE_COLUMN)]),
                outputs=Schema([*outputs, ColSpec("string", LABEL_COLUMN)]),
            ),
            input_example=pd.DataFrame({IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        (written / "data" / weights.name).unlink()
        (written / "data").rmdir()
        for entry in written.iterdir():
            if entry.is_dir():  # it exists already if a process died while copying
                bytecode = shutil.ignore_patterns("__pycache__")
                shutil.copytree(entry, root / entry.name, ignore=bytecode, dirs_exist_ok=True)
            else:
                shutil.copy(entry, root)


def _public_version(package: str) -> str:
    """The version without its local part: no registry has `2.15.0+cu130`."""
    return version(package).partition("+")[0]
