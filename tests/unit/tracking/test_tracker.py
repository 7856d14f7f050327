"""A tracking server that refuses, hangs or dies neither fails nor delays the training."""

import builtins
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.logs import warnings_in

from train_pytorch_model.formats.image_directory import images_of
from train_pytorch_model.formats.listing import list_unlabelled
from train_pytorch_model.tracking import tracker as module
from train_pytorch_model.tracking.description import RunDescription
from train_pytorch_model.tracking.tracker import MAX_FAILURES, MlflowTracker, earlier_epochs

pytestmark = pytest.mark.filterwarnings(
    "ignore::Warning:sqlalchemy", "ignore::Warning:mlflow"
)  # not ours

IMAGES = images_of(
    list_unlabelled([f"{number}.png" for number in range(7)], {}), Path("flowers"), "Images"
)
DESCRIPTION = RunDescription(
    "trained",
    {"epochs": 2},
    {"output": "trained", "architecture": "resnet18", "command": "x" * 5000},
    {"training": IMAGES},
)
RECORD = {"epoch": 1, "step": 4, "Train loss": 0.5, "Learning rate": 0.1}


class Server(ThreadingHTTPServer):
    """A minimal MLflow server: as much as a run needs. `fault` replaces its answers."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fault: int | str | None = None
        self.calls: list[str] = []
        self.metrics: list[tuple[str, int, float]] = []
        self.statuses: list[str] = []
        self.over = threading.Event()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        self._answer(json.loads(self.rfile.read(length) or b"{}"))

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, sent: dict[str, Any]) -> None:
        call = self.path.partition("?")[0].rpartition("mlflow/")[2]
        self.server.calls.append(call)
        if self.server.fault == "hangs":
            self.server.over.wait(60)
            return
        if self.server.fault == "dies":
            self.connection.close()
            return
        if isinstance(self.server.fault, int):
            codes = {404: "RESOURCE_DOES_NOT_EXIST"}
            error = {
                "error_code": codes.get(self.server.fault, "INTERNAL_ERROR"),
                "message": "broken",
            }
            self._send(self.server.fault, error)
            return
        self._send(200, self._follow(call, sent))

    def _follow(self, call: str, sent: dict[str, Any]) -> dict[str, Any]:
        server = self.server
        info = {
            "run_id": "r1",
            "run_uuid": "r1",
            "experiment_id": "7",
            "status": "RUNNING",
            "lifecycle_stage": "active",
        }
        if call == "experiments/get-by-name":
            return {"experiment": {"experiment_id": "7", "name": "train_pytorch_model"}}
        if call == "runs/log-batch":
            server.metrics += [
                (m["key"], int(m["step"]), float(m["value"])) for m in sent.get("metrics", [])
            ]
        if call == "runs/update" and "status" in sent:
            server.statuses.append(sent["status"])
        if call == "metrics/get-history":
            found = [m for m in server.metrics if m[0] == "Learning rate"]
            return {
                "metrics": [{"key": k, "step": s, "value": v, "timestamp": 1} for k, s, v in found]
            }
        return {"run": {"info": info, "data": {}}, "run_info": info}

    def _send(self, status: int, content: dict[str, Any]) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()
    thread.join()
    for left in threading.enumerate():  # a leftover tracker would reach the next test's server
        if left.name == "mlflow":
            left.join(60)
            assert not left.is_alive()


@contextmanager
def tracking(tmp_path: Path) -> Iterator[MlflowTracker]:
    with MlflowTracker(DESCRIPTION, tmp_path / "mlflow_run") as tracker:
        yield tracker


def record(epoch: int) -> dict[str, float]:
    return RECORD | {"epoch": epoch, "step": 4 * epoch}


def log_and_raise(error: BaseException, tmp_path: Path) -> None:
    """Log an epoch, then end the run by an exception."""
    with suppress(type(error)), tracking(tmp_path) as tracker:
        tracker.log(record(1))
        raise error


def wait_for_call(server: Server, count: int = 1) -> None:
    deadline = time.monotonic() + 60
    while len(server.calls) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_run_sends_its_epochs_and_ends(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tracking(tmp_path) as tracker:
        tracker.log(record(1))
        tracker.log(record(2))
    assert warnings_in(caplog) == []
    assert [(step, value) for key, step, value in server.metrics if key == "Train loss"] == [
        (1, 0.5),
        (2, 0.5),
    ]
    assert server.statuses[-1] == "FINISHED"
    assert f"  http://127.0.0.1:{server.server_port}/#/experiments/7/runs/r1" in caplog.text
    assert (tmp_path / "mlflow_run").read_text() == "r1"


def test_a_resumed_run_sends_no_epoch_twice(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log_and_raise(SystemExit(143), tmp_path)
    assert "FINISHED" not in server.statuses
    assert "FAILED" not in server.statuses
    with tracking(tmp_path) as tracker:
        tracker.log(record(1))
        tracker.log(record(2))
    assert warnings_in(caplog) == []
    assert [step for key, step, _ in server.metrics if key == "Train loss"] == [1, 2]
    assert server.calls.count("runs/create") == 1


def test_a_failed_run_is_marked_as_failed(server: Server, tmp_path: Path) -> None:
    log_and_raise(ValueError("ours"), tmp_path)
    assert server.statuses[-1] == "FAILED"


@pytest.mark.parametrize("fault", [401, 403, 429, 500, "dies", "hangs"])
def test_a_faulty_server_causes_one_warning(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: int | str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.fault = fault
    if fault == "hangs":
        monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with tracking(tmp_path) as tracker:
        for epoch in range(1, 9):
            tracker.log(record(epoch))
    assert len(warnings_in(caplog)) == 1
    assert warnings_in(caplog)[0].startswith("MLflow does not have all metrics (")
    assert warnings_in(caplog)[0].endswith("); metrics.jsonl has them.")


def test_an_unreachable_server_causes_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with tracking(tmp_path) as tracker:
        tracker.log(record(1))
    assert len(warnings_in(caplog)) == 1


def test_logging_does_not_wait_for_a_server_that_hangs(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Nor does closing wait longer than `CLOSING_S`, although the call is still in progress."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "50")
    monkeypatch.setattr(module, "CLOSING_S", 0.2)
    server.fault = "hangs"
    with tracking(tmp_path) as tracker:
        tracker.log(record(1))
        wait_for_call(server)
        for epoch in range(2, 100):
            tracker.log(record(epoch))
    assert not server.over.is_set()  # the call is still waiting
    assert warnings_in(caplog) == [
        "MLflow does not have all metrics (no answer within 0 s); metrics.jsonl has them."
    ]


def test_metrics_that_the_server_missed_are_sent_at_the_end(
    server: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with tracking(tmp_path) as tracker:
        tracker.log(record(1))
        deadline = time.monotonic() + 60
        while not server.metrics:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        server.fault = 500
        calls = len(server.calls)
        for epoch in range(2, 6):
            tracker.log(record(epoch))
        wait_for_call(server, calls + MAX_FAILURES)
        server.fault = None
    assert warnings_in(caplog) == []
    assert [step for key, step, _ in server.metrics if key == "Train loss"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("fault", "warnings"), [(None, 0), (404, 0), (500, 1)])
def test_whether_a_job_has_trained_before_is_never_left_open_in_silence(
    fault: int | None,
    warnings: int,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "r1")
    server.fault = fault
    assert earlier_epochs() == 0
    assert server.calls == ["metrics/get-history"]
    said = "MLflow does not say whether an earlier start of this job has trained."
    assert [text.startswith(said) for text in warnings_in(caplog)] == [True] * warnings


def test_the_time_for_an_answer_does_not_count_loading_mlflow(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a slow node, that alone takes longer."""
    monkeypatch.setenv("MLFLOW_RUN_ID", "r1")
    imported: list[str] = []
    real_import = builtins.__import__

    def record_import(name: str, *arguments: Any, **options: Any) -> Any:
        imported.append(name)
        return real_import(name, *arguments, **options)

    def ask_now(call: Callable[[], int]) -> Future[int]:
        assert "mlflow" in imported
        imported.clear()
        answer: Future[int] = Future()
        answer.set_result(call())
        assert "mlflow" not in imported
        return answer

    monkeypatch.setattr(module, "in_thread", ask_now)
    monkeypatch.setattr(builtins, "__import__", record_import)
    assert earlier_epochs() == 0
    assert server.calls == ["metrics/get-history"]
