"""MLflow's own tracking server behind a door that answers as Azure ML's does, is slow, or falls shut."""

import http.client
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.ports import free_port
from tests.programs.server import serving

BIN = Path(sys.executable).parent  # mlflow starts uvicorn by its name, as in an activated environment
NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length"}


class Door(ThreadingHTTPServer):
    """Passes requests on to the server behind it, and answers 404 to /logged-models by itself."""

    daemon_threads = True

    def __init__(self, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server_behind = f"http://127.0.0.1:{server_port}"
        """For those who look at what has arrived."""
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.behind_port = server_port
        self.calls: list[str] = []
        """What was asked for, as `POST runs/log-batch`."""
        self.opens: Callable[[], bool] = lambda: True
        """Called, with patience, until a request may pass."""
        self.is_shut = False

    def open_again(self) -> None:
        """As it was at the beginning."""
        self.calls.clear()
        self.opens = lambda: True
        self.is_shut = False


class _Handler(BaseHTTPRequestHandler):
    server: Door

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path = self.path.partition("?")[0]
        waiting = threading.Event()
        while not self.server.opens():
            waiting.wait(0.05)
        if self.server.is_shut:
            self.close_connection = True
            self.connection.close()
            return
        self.server.calls.append(f"{self.command} {path.partition('/mlflow/')[2] or path}")
        if "/logged-models" in path:
            self._answer(404, b"", [])
            return
        passed = {name: value for name, value in self.headers.items() if name.lower() not in NOT_PASSED_ON}
        behind = http.client.HTTPConnection("127.0.0.1", self.server.behind_port, timeout=60)
        try:
            behind.request(self.command, self.path, body, passed)
            answer = behind.getresponse()
            self._answer(answer.status, answer.read(), answer.getheaders())
        finally:
            behind.close()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _pass_on  # noqa: N815, http.server's names

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes, headers: list[tuple[str, str]]) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in NOT_PASSED_ON:
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def tracking_server(folder: Path) -> Iterator[Door]:
    """The server, with its files in `folder`, and the door to it."""
    port = free_port()
    command = (
        *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)),
        *("--workers", "1", "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
        *("--artifacts-destination", str(folder / "artifacts")),
    )
    environment = {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    with serving(command, environment, folder, f"http://127.0.0.1:{port}/health"), Door(port) as door:
        thread = threading.Thread(target=door.serve_forever, daemon=True)
        thread.start()
        yield door
        door.shutdown()
        thread.join()
