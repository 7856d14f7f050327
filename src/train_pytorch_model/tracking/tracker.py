"""Logs the metrics of each epoch and the report to MLflow.

Logging never fails or slows down training: a thread does it, and any failure there is just one warning. In an
Azure ML job it goes to the run that Azure has created; elsewhere to a new run of the experiment
`train_pytorch_model`, in MLflow's default store unless its environment variables name another.
"""

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.priority import lower_priority
from train_pytorch_model.tracking.mlflow_process import Mlflow

CLOSING_S = 60.0  # how long the end of a run waits for metrics: on a busy machine a new store took 30 s
STOPPING_S = 5.0  # the same for an interrupted run
MAX_FAILURES = 3  # in a row; then nothing is sent until the end
POSITIONS = ("epoch", "step")  # the keys of a record that are not metrics


@dataclass(frozen=True)
class Attachment:
    """A text file to log to a run."""

    name: str
    text: str


class NoTracker:
    """Logs nothing: for ranks other than 0."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def log(self, record: Mapping[str, float]) -> None:
        pass

    def attach(self, attachment: Attachment) -> None:
        pass


class MlflowTracker:
    """Logs to an MLflow run from a thread of its own, one batch per epoch.

    What cannot be sent is retried once, at the end. `run_id_path` keeps the run's id for a resumed training,
    which logs all its epochs again; those that the run already has are not sent twice.
    """

    def __init__(self, mlflow: Mlflow, params: Mapping[str, Any], run_id_path: Path) -> None:
        self._mlflow = mlflow
        self._params = {name: str(value) for name, value in params.items()}
        self._run_id_path = run_id_path
        self._begun_ms = _now_ms()
        self._queue: queue.Queue[_Epoch | None] = queue.Queue()
        self._attachments: list[Attachment] = []
        self._thread = threading.Thread(target=self._send_all, daemon=True, name="mlflow")
        self._ends_as: str | None = None
        self._is_left_alone = False

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
            self._ends_as = "FAILED"  # a stopped run stays open, to be resumed
        self._queue.put(None)
        timeout_s = CLOSING_S if kind is None else STOPPING_S
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._warn_of_metrics(f"no answer within {timeout_s:.0f} s")
            self._is_left_alone = True  # its errors from now on are due to the shutdown

    def log(self, record: Mapping[str, float]) -> None:
        """Log an epoch: `epoch`, counted from 1, `step`, and the metrics under their documented names."""
        self._queue.put(_Epoch(record, _now_ms()))

    def attach(self, attachment: Attachment) -> None:
        """Add a file, which is sent at the end."""
        self._attachments.append(attachment)

    def _warn_of_metrics(self, reason: object) -> None:
        self._warn(f"MLflow does not have all metrics ({reason}); metrics.jsonl has them.")

    def _warn(self, text: str) -> None:
        if not self._is_left_alone:
            logger.warning(text)

    def _send_all(self) -> None:
        lower_priority()  # for MLflow in this process, if it has none of its own
        run: _Run | None = None
        unsent: list[_Epoch] = []
        failures = 0
        while (epoch := self._queue.get()) is not None:
            unsent.append(epoch)
            if failures >= MAX_FAILURES:
                continue  # the server is unreachable; retry once at the end
            try:
                run = run or self._open()
                if failures:
                    run.note_sent()  # a call that failed may have arrived all the same
                while unsent:
                    run.send(unsent[0])
                    unsent.pop(0)
                failures = 0
            except Exception:  # servers, networks and client libraries raise all kinds
                failures += 1
        try:
            run = run or self._open()
            if unsent:
                run.note_sent()
            for epoch in unsent:
                run.send(epoch)
            self._send_attachments(run)
            if self._ends_as:
                run.end(self._ends_as)
        except Exception as error:  # likewise
            self._warn_of_metrics(error)

    def _open(self) -> "_Run":
        return _Run(self._mlflow, self._params, self._run_id_path, self._begun_ms)

    def _send_attachments(self, run: "_Run") -> None:
        try:
            for attachment in self._attachments:
                run.attach(attachment)
        except Exception as error:  # likewise, from the artifact store, which may be a different one
            self._warn(f"MLflow does not have the report ({error}).")


@dataclass(frozen=True)
class _Epoch:
    """The record of an epoch, and when it ended: MLflow may not be ready yet."""

    record: Mapping[str, float]
    ended_ms: int


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class _Run:
    """An MLflow run, Azure's or our own, and the epochs it has."""

    def __init__(self, mlflow: Mlflow, params: Mapping[str, Any], run_id_path: Path, begun_ms: int) -> None:
        """Open the run that the environment or an earlier start names, else a new one. May raise anything."""
        opened = mlflow.call("open_run", params, _read_text(run_id_path), begun_ms)
        self._mlflow = mlflow
        self._run_id, self._is_ours = opened["run_id"], opened["is_ours"]
        self._sent = set(opened["epochs"])
        with suppress(OSError):
            run_id_path.write_text(self._run_id)

    def note_sent(self) -> None:
        """Query which epochs the run has."""
        self._sent = set(self._mlflow.call("epochs_of", self._run_id))

    def send(self, epoch: "_Epoch") -> None:
        """Log the metrics of an epoch, unless the run has them."""
        number = int(epoch.record["epoch"])
        if number not in self._sent:
            metrics = {name: value for name, value in epoch.record.items() if name not in POSITIONS}
            self._mlflow.call("log_epoch", self._run_id, number, epoch.ended_ms, metrics)
            self._sent.add(number)

    def attach(self, attachment: Attachment) -> None:
        """Log a file to the run."""
        self._mlflow.call("attach", self._run_id, attachment.text, attachment.name)

    def end(self, status: str) -> None:
        """End a run of our own; Azure ends its own."""
        if self._is_ours:
            self._mlflow.call("end_run", self._run_id, status)


def _read_text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
