"""MLflow's own tracking server behind a proxy that behaves like Azure ML's, delays requests or
drops them.
"""

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

BIN = Path(sys.executable).parent  # on PATH, because mlflow starts uvicorn by name
NOT_PASSED_ON = {"host", "connection", "transfer-encoding", "content-length"}


class Door(ThreadingHTTPServer):
    """A proxy that forwards requests to a server, but answers /logged-models with 404."""

    daemon_threads = True

    def __init__(self, server_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.server_behind = f"http://127.0.0.1:{server_port}"
        """URL of the server itself, to check what has arrived."""
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.behind_port = server_port
        self.calls: list[str] = []
        """The forwarded requests, as `POST runs/log-batch`."""
        self.opens: Callable[[], bool] = lambda: True
        """Polled for each request until it returns True."""
        self.is_shut = False

    def open_again(self) -> None:
        """Return to the initial state."""
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
        passed = {
            name: value for name, value in self.headers.items() if name.lower() not in NOT_PASSED_ON
        }
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
    """Run the server, with its files in `folder`, and yield the proxy, for a `with`."""
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
    with (
        serving(command, environment, folder, f"http://127.0.0.1:{port}/health"),
        Door(port) as door,
    ):
        thread = threading.Thread(target=door.serve_forever, daemon=True)
        thread.start()
        yield door
        door.shutdown()
        thread.join()
