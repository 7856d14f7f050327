"""MLflow: metrics of each epoch, the report, and the trained directory as an MLflow model.

Alone in importing mlflow.

Metrics never fail or slow a training: they leave from a thread, and what goes wrong there is one warning.
In an Azure ML job they go to the run that Azure has made; elsewhere to a new run of the experiment
`train_pytorch_model`, in MLflow's default store unless its variables name another.
"""

import logging
import os
import queue
import threading
import time
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Protocol, Self

from train_pytorch_model.image_classifier import serving
from train_pytorch_model.image_classifier.scored_columns import LABEL_COLUMN, PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.priority import step_back
from train_pytorch_model.progress import Voice

EXPERIMENT = "train_pytorch_model"
CLOSING_S = 30.0  # how long the end of a run waits for metrics that are still on their way
REQUEST_TIMEOUT_S, REQUEST_RETRIES = (
    5,
    1,
)  # by default a dead server holds each call for four minutes
MAX_FAILURES = 3  # in a row; then the server is left alone until the end
POSITIONS = ("epoch", "step")  # of a record, beside its metrics
LAST_METRIC = "Learning rate"  # one that every epoch has
SERVING_PACKAGES = ("torch", "torchvision", "numpy", "pandas", "pillow")


@dataclass(frozen=True)
class Attachment:
    """A file of a run."""

    name: str
    text: str


class Tracker(Protocol):
    """Where the metrics of a run go."""

    def log(self, record: Mapping[str, float]) -> None:
        """An epoch: `epoch`, counted from 1, `step`, and the metrics under their documented names."""

    def attach(self, attachment: Attachment) -> None:
        """A file, which is sent at the end."""


class NoTracker:
    """Of ranks other than 0, and of dry runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def log(self, record: Mapping[str, float]) -> None:
        pass

    def attach(self, attachment: Attachment) -> None:
        pass


class MlflowTracker:
    """A run of MLflow, written to by a thread of its own, one batch an epoch.

    What cannot be sent is tried again at the end, once. `run_id_path` keeps the run's id for a training that
    goes on later: it logs all its epochs again, and those that the run has already are not sent twice.
    """

    def __init__(self, params: Mapping[str, Any], run_id_path: Path, voice: Voice) -> None:
        self._params = params
        self._run_id_path = run_id_path
        self._voice = voice
        self._begun_ms = _now_ms()
        self._queue: queue.Queue[_Epoch | None] = queue.Queue()
        self._attachments: list[Attachment] = []
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="mlflow")
        self._ends_as: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self._ends_as = "FINISHED"
        elif issubclass(kind, Exception):
            self._ends_as = "FAILED"  # and what was only stopped goes on
        self._queue.put(None)
        timeout_s = CLOSING_S if kind is None else REQUEST_TIMEOUT_S
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(f"no answer within {timeout_s:.0f} s")

    def log(self, record: Mapping[str, float]) -> None:
        self._queue.put(_Epoch(record, _now_ms()))

    def attach(self, attachment: Attachment) -> None:
        self._attachments.append(attachment)

    def _warn(self, reason: str) -> None:
        self._voice.warn(f"MLflow does not have all metrics ({reason}); metrics.jsonl has them.")

    def _send_all(self) -> None:
        step_back()  # importing mlflow and making a new store take two to four seconds of computing
        run: _MlflowRun | None = None
        unsent: list[_Epoch] = []
        failures = 0
        while (epoch := self._queue.get()) is not None:
            unsent.append(epoch)
            if failures >= MAX_FAILURES:
                continue  # nobody is there; once more at the end
            try:
                run = run or _MlflowRun.open(self._params, self._run_id_path, self._begun_ms)
                if failures:
                    run.note_sent()  # what has failed may have arrived all the same
                while unsent:
                    run.send(unsent[0])
                    unsent.pop(0)
                failures = 0
            except Exception:  # whatever a server, a network or a client library comes up with
                failures += 1
        try:
            run = run or _MlflowRun.open(self._params, self._run_id_path, self._begun_ms)
            if unsent:
                run.note_sent()
            for epoch in unsent:
                run.send(epoch)
            self._send_attachments(run)
            if self._ends_as:
                run.end(self._ends_as)
        except Exception as error:  # the same
            self._warn(_reason(error))

    def _send_attachments(self, run: "_MlflowRun") -> None:
        try:
            for attachment in self._attachments:
                run.attach(attachment)
        except Exception as error:  # the same, of the store of files, which may be another
            self._voice.warn(f"MLflow does not have the report ({_reason(error)}).")


@dataclass(frozen=True)
class _Epoch:
    """What is known of an epoch, and when: MLflow may not be there yet."""

    record: Mapping[str, float]
    ended_ms: int


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


class _MlflowRun:
    """A run in MLflow, Azure's or our own."""

    def __init__(self, client: Any, run_id: str, is_ours: bool) -> None:
        self._client, self._run_id, self._is_ours = client, run_id, is_ours
        self._sent: set[int] = set()

    @classmethod
    def open(cls, params: Mapping[str, Any], run_id_path: Path, begun_ms: int) -> Self:
        """The run that the environment or an earlier start names, else a new one. Raises anything."""
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", str(REQUEST_TIMEOUT_S))
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", str(REQUEST_RETRIES))
        import mlflow

        for name in ("mlflow", "alembic"):  # a new store reports every migration
            logging.getLogger(name).setLevel(logging.WARNING)
        client = mlflow.MlflowClient()
        if named := os.environ.get("MLFLOW_RUN_ID"):
            run = cls(client, named, is_ours=False)
            run.note_sent()
        elif begun := _read_text(run_id_path):
            run = cls(client, begun, is_ours=True)
            try:
                run.note_sent()
                client.update_run(begun, "RUNNING")
                return run
            except mlflow.MlflowException:  # of another store, or deleted
                run = cls(client, cls._create(client, begun_ms), is_ours=True)
        else:
            run = cls(client, cls._create(client, begun_ms), is_ours=True)
        run._log_params(params)
        with suppress(OSError):
            run_id_path.write_text(run._run_id)
        return run

    def send(self, epoch: "_Epoch") -> None:
        """The metrics of an epoch, with its number as step, unless the run has them."""
        from mlflow.entities import Metric

        number = int(epoch.record["epoch"])
        if number in self._sent:
            return
        batch = [
            Metric(name, value, epoch.ended_ms, number)
            for name, value in epoch.record.items()
            if name not in POSITIONS
        ]
        self._client.log_batch(self._run_id, metrics=batch)
        self._sent.add(number)

    def attach(self, attachment: Attachment) -> None:
        """A file of the run, in place of one of this name."""
        self._client.log_text(self._run_id, attachment.text, attachment.name)

    def end(self, status: str) -> None:
        """Close a run of our own; Azure closes its own."""
        if self._is_ours:
            self._client.set_terminated(self._run_id, status)

    @staticmethod
    def _create(client: Any, begun_ms: int) -> str:
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        experiment = client.get_experiment_by_name(name)
        experiment_id = os.environ.get("MLFLOW_EXPERIMENT_ID") or (
            experiment.experiment_id
            if experiment
            else client.create_experiment(name, artifact_location=_beside_database(client.tracking_uri))
        )
        return str(client.create_run(experiment_id, start_time=begun_ms).info.run_id)

    def note_sent(self) -> None:
        """Ask which epochs the run has. Raises anything."""
        self._sent = {metric.step for metric in self._client.get_metric_history(self._run_id, LAST_METRIC)}

    def _log_params(self, params: Mapping[str, Any]) -> None:
        """Those that the run does not have: none can be changed, and a job that goes on may have others."""
        from mlflow.entities import Param

        known = self._client.get_run(self._run_id).data.params
        missing = [Param(name, str(value)) for name, value in params.items() if name not in known]
        self._client.log_batch(self._run_id, params=missing)


def _beside_database(store: str) -> str | None:
    """Where files of runs belong that a local database lists; MLflow would take the working directory."""
    scheme, _, path = store.partition(":///")
    if scheme != "sqlite":
        return None  # a server knows by itself
    return (Path(path).absolute().parent / "mlruns").as_uri()


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def save_mlflow_model(root: Path, spec: ClassifierSpec, example: str) -> None:
    """Make the trained directory `root`, which holds its weights already, an MLflow model as well.

    MLflow writes into an empty folder only, so it writes elsewhere and its files are moved here; the weights
    stay where they are and `MLmodel` points to them. `example` is an image file as base64.
    """
    import mlflow
    import pandas as pd
    from mlflow.models import Model, ModelSignature
    from mlflow.types import ColSpec, Schema

    logging.getLogger("mlflow").setLevel(logging.WARNING)
    weights = root / "model"
    outputs = [ColSpec("double", PROBABILITY_PREFIX + name) for name in spec.categories]
    with TemporaryDirectory() as scratch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, of its own dependencies
        placeholder = Path(scratch) / weights.name
        placeholder.touch()
        written = Path(scratch) / "mlflow_model"
        mlflow.pyfunc.save_model(
            written,
            loader_module="image_classifier.serving",
            code_paths=[str(Path(serving.__file__).parent)],
            data_path=str(placeholder),
            model_config=spec.as_mapping(),
            pip_requirements=[f"{name}=={_public_version(name)}" for name in SERVING_PACKAGES],
            signature=ModelSignature(
                inputs=Schema([ColSpec("string", serving.IMAGE_COLUMN)]),
                outputs=Schema([*outputs, ColSpec("string", LABEL_COLUMN)]),
            ),
            input_example=pd.DataFrame({serving.IMAGE_COLUMN: [example]}),
        )
        model = Model.load(written)
        model.flavors["python_function"]["data"] = weights.name
        model.model_size_bytes = weights.stat().st_size
        model.save(written / "MLmodel")
        (written / "data" / weights.name).unlink()
        (written / "data").rmdir()
        for entry in written.iterdir():
            _copy(entry, root / entry.name)


def _public_version(package: str) -> str:
    """Without the local part: `2.15.0+cu130` is on no registry."""
    return version(package).partition("+")[0]


def _copy(source: Path, target: Path) -> None:
    """Files and folders by plain writes: a mounted output knows neither renames nor permissions."""
    if source.is_dir():
        target.mkdir()
        for entry in source.iterdir():
            if entry.name != "__pycache__":
                _copy(entry, target / entry.name)
    else:
        target.write_bytes(source.read_bytes())
