"""A run in MLflow's store, Azure's, an earlier start's or a new one; and the trained directory as a
model.

Importing this module imports mlflow, which takes a second of computing: the tracker's thread does
so first.
"""

import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import mlflow
import yaml
from mlflow.entities import Dataset, DatasetInput, InputTag, Metric, Param, RunTag
from mlflow.utils.mlflow_tags import MLFLOW_DATASET_CONTEXT

from train_pytorch_model.formats.reading import MalformedFileError, read_bounded
from train_pytorch_model.image_classifier import predictions
from train_pytorch_model.image_classifier.architectures import is_of_timm
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.tracking import load_image_classifier

if TYPE_CHECKING:
    from train_pytorch_model.tracking.tracker import RunDescription

EXPERIMENT = "train_pytorch_model"
UI = "http://127.0.0.1:5000"  # where `mlflow ui` listens by default
MAX_DIGEST = 36  # characters, MLflow's limit
MAX_RUN_ID = 1000  # bytes
LAST_METRIC = "Learning rate"  # one that every epoch logs
SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow", "pillow-heif")
# For conda.yaml, from which Azure ML builds the environment of an endpoint. A managed one runs a
# scoring script in it that imports both packages; a batch endpoint adds what it needs. Hosts have
# CPUs, for which the index has a smaller torch; where it cannot be reached, pip takes PyPI's.
# MLflow's own server uses requirements.txt.
CPU_INDEX = "--extra-index-url https://download.pytorch.org/whl/cpu"
ENDPOINT_PACKAGES = ("azureml-inference-server-http>=1.5", "azureml-ai-monitoring>=1.0")

for name in ("mlflow", "alembic"):  # a new store logs every migration
    logging.getLogger(name).setLevel(logging.WARNING)


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


def save_model(root: Path, spec: ClassifierSpec, example: str, facts: Mapping[str, Any]) -> None:
    """Make the trained directory `root`, which already holds the weights, an MLflow model too.

    MLflow only writes into an empty folder, so it writes to one in `root`, and its files are moved;
    the weights stay in place and `MLmodel` points to them. `example` is a base64-encoded image
    file, `facts` become the `metadata` of the model. Raises `OSError`.
    """
    # Here, because training starts sooner without.
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, ParamSchema, ParamSpec, Schema

    weights = root / "model"
    packages = [*SERVING_PACKAGES, *(["timm"] if is_of_timm(spec.architecture) else [])]
    # Without the local part: no registry has `2.15.0+cu130`.
    versions = {name: metadata.version(name).partition("+")[0] for name in packages}
    inputs = predictions.IMAGE_COLUMN, predictions.NAME_COLUMN
    outputs = [ColSpec("double", predictions.PROBABILITY_PREFIX + name) for name in spec.categories]
    outputs += [
        ColSpec("string", name) for name in (predictions.LABEL_COLUMN, predictions.ERROR_COLUMN)
    ]
    with _disk_errors(), TemporaryDirectory(dir=root) as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's, about its own dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module=Path(load_image_classifier.__file__).stem,
            code_paths=[load_image_classifier.__file__, str(Path(predictions.__file__).parent)],
            data_path=str(placeholder),
            model_config=spec.as_mapping(),
            pip_requirements=[f"{name}=={version}" for name, version in versions.items()],
            signature=ModelSignature(
                # None is required: MLflow would raise before the model can answer a table without
                # images.
                inputs=Schema([ColSpec("string", name, required=False) for name in inputs]),
                outputs=Schema([*outputs]),
                params=ParamSchema([ParamSpec(predictions.KNOWN_FRACTION, "double", 1.0)]),
            ),
            metadata=dict(facts),
            input_example=pd.DataFrame({predictions.IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        conda = yaml.safe_load((written / "conda.yaml").read_text())
        (pip,) = (entry["pip"] for entry in conda["dependencies"] if isinstance(entry, dict))
        pip[:] = [CPU_INDEX, *pip, *ENDPOINT_PACKAGES]
        (written / "conda.yaml").write_text(yaml.safe_dump(conda, sort_keys=False))
        for unwanted in (
            written / "data",
            *written.rglob("__pycache__"),
        ):  # the placeholder, bytecode
            shutil.rmtree(unwanted)
        for entry in written.iterdir():
            shutil.move(entry, root)


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Raise the `OSError`, such as of a full disk, that MLflow has made an error of its own of."""
    try:
        yield
    except mlflow.MlflowException as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from None
        raise
