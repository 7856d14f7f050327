"""Logs the metrics of each epoch and the report to MLflow.

Logging never fails training, nor makes it wait: a thread does it, and any failure there is just one
warning. In an Azure ML job it goes to the run that Azure has created, which a restarted job also
asks for what an earlier start has left; elsewhere to a new run of the experiment
`train_pytorch_model`, in MLflow's default store unless its environment variables name another.
"""

import os
import queue
import re
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from train_pytorch_model.config.wording import reason_of
from train_pytorch_model.distributed.waiting import in_thread
from train_pytorch_model.machine.console import logger
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.tracking.mlflow_logs import hush_mlflow

if TYPE_CHECKING:
    from train_pytorch_model.tracking.mlflow_run import MlflowRun


# How long the end of a run waits for metrics: on a busy machine a new store took 30 s.
CLOSING_S = 60.0
STOPPING_S = 5.0  # the same for an interrupted run
MAX_FAILURES = 3  # in a row; then nothing is sent until the end
# For the number of epochs, before training starts. It counts from when mlflow is loaded, which
# takes a cold node long and says nothing about the server.
ANSWER_S = 60.0
RUN_ID = "MLFLOW_RUN_ID"  # the variable that names the run of an Azure ML job

# Environment variables: by default a dead server blocks each call for four minutes, and usage
# statistics delay the process's end.
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


class MlflowTracker:
    """Logs to an MLflow run in a thread, no epoch twice.

    What cannot be sent is tried again at the end.
    """

    def __init__(self, description: RunDescription, run_id_path: Path) -> None:
        self._description = description
        self._run_id_path = run_id_path
        self._started_ns = time.time_ns()
        # Records of epochs, and when they ended: MLflow may not be ready yet. Neither grows beyond
        # one record per epoch, each of a few numbers.
        self._queue: queue.SimpleQueue[tuple[Mapping[str, float], int] | None] = queue.SimpleQueue()
        self._unsent: list[tuple[Mapping[str, float], int]] = []
        self._conclusions: Mapping[str, float] = {}
        self._files: Mapping[str, str] = {}
        self._run: MlflowRun | None = None
        self._num_failures = 0
        # Of the usual priority: a niced thread lets go of the GIL late, and then costs training
        # 3 s, not 2.
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="mlflow")
        self._ends_as: str | None = None
        self._is_left_alone = False

    def __enter__(self) -> Self:
        _set_defaults()
        self._thread.start()
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is None or isinstance(error, Exception):  # a stopped run stays open, to be resumed
            self._ends_as = "FAILED" if error else "FINISHED"
        self._queue.put(None)
        timeout_s = STOPPING_S if error else CLOSING_S
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn(f"all metrics (no answer within {timeout_s:.0f} s); metrics.jsonl has them")
            self._is_left_alone = True  # its errors from now on are due to the shutdown

    def log(self, record: Mapping[str, float]) -> None:
        """Log an epoch: `epoch`, counted from 1, `step`, and metrics by their documented names."""
        self._queue.put((record, time.time_ns()))

    def conclude(self, metrics: Mapping[str, float], files: Mapping[str, str]) -> None:
        """Add metrics of the published model, and text files by name, which are sent at the end."""
        self._conclusions = metrics
        self._files = files

    def _send_all(self) -> None:
        # Nothing yet: this imports MLflow and opens a run, while training begins.
        self._try_to_send()
        for epoch in iter(self._queue.get, None):
            self._unsent.append(epoch)
            if self._num_failures < MAX_FAILURES:  # otherwise the server is unreachable
                self._try_to_send()
        try:
            self._conclude(self._send())
        except Exception as error:  # servers, networks and client libraries raise all kinds
            self._warn(f"all metrics ({reason_of(error)}); metrics.jsonl has them")

    def _conclude(self, run: "MlflowRun") -> None:
        """Send what is known at the end. May raise anything."""
        run.log_metrics(self._conclusions, time.time_ns() // 1_000_000)
        try:
            for name, text in self._files.items():
                run.attach(name, text)
        except Exception as error:  # of the artifact store, which may be another server
            self._warn(f"the report ({reason_of(error)})")
        if self._ends_as:
            run.end(self._ends_as)
        if self._ends_as == "FINISHED" and run.page:
            logger.info(run.page)

    def _try_to_send(self) -> None:
        try:
            self._send()
            self._num_failures = 0
        except Exception:  # likewise
            self._num_failures += 1

    def _send(self) -> "MlflowRun":
        """Send what has not been sent, and return the run. May raise anything."""
        from train_pytorch_model.tracking.mlflow_run import MlflowRun

        if self._run is None:
            self._run = MlflowRun(
                self._description, self._run_id_path, self._started_ns // 1_000_000
            )
        elif self._num_failures:
            self._run.query_epochs()
        while self._unsent:
            record, ended_ns = self._unsent[0]
            metrics = {
                name: value for name, value in record.items() if name not in ("epoch", "step")
            }
            self._run.log_epoch(int(record["epoch"]), ended_ns // 1_000_000, metrics)
            self._unsent.pop(0)
        return self._run

    def _warn(self, missing: str) -> None:
        if not self._is_left_alone:
            logger.warning(f"MLflow does not have {missing}.")


def _set_defaults() -> None:
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def earlier_epochs() -> int:
    """Return the number of epochs that earlier starts have logged to an Azure ML job's run.

    It is 0, with a warning, if that is unknown.
    """
    _set_defaults()
    run_id = os.environ.get(RUN_ID)
    if not run_id:
        return 0

    def ask() -> int:
        return len(mlflow.MlflowClient().get_metric_history(run_id, LAST_METRIC))

    try:
        import mlflow

        from train_pytorch_model.tracking.mlflow_run import LAST_METRIC

        hush_mlflow()
        # In a thread: a server that is unreachable blocks the client for minutes.
        return in_thread(ask).result(ANSWER_S)
    except Exception as error:  # likewise
        # What a store may answer about a metric that it does not have.
        if getattr(error, "error_code", "") != "RESOURCE_DOES_NOT_EXIST":
            logger.warning(
                "MLflow does not say whether an earlier start of this job has trained. If one has,"
                " its epochs are trained again."
            )
        return 0


def earlier_copies(folder: Path, scratch: Path) -> Iterator[Path]:
    """Yield copies of `folder`, of outputs/, from retry_002/, retry_001/, … and the first start."""
    import mlflow

    client = mlflow.MlflowClient()
    run_id = os.environ[RUN_ID]
    try:
        names = [file.path for file in client.list_artifacts(run_id)]
        retries = sorted((name for name in names if re.fullmatch(r"retry_\d+", name)), reverse=True)
        for start in (*retries, ""):
            path = (Path(start) / folder).as_posix()
            if client.list_artifacts(run_id, path):
                yield Path(client.download_artifacts(run_id, path, str(scratch)))
    except Exception:  # servers, networks and client libraries raise all kinds; then there is none
        return
