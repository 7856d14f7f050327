"""A server in a separate process for the duration of a `with` block, and requests to it."""

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

START_UP_S = 240


@contextmanager
def serving(
    command: Sequence[str | Path], environment: Mapping[str, str], folder: Path, ping: str
) -> Iterator[None]:
    """Start the server in `folder`, and enter the block once the address `ping` answers."""
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        _wait_for(ping, server, log)
        yield
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def _wait_for(address: str, server: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_UP_S
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    pytest.fail(f"the server does not answer: {log.read_text()[-3000:]}")


def post(url: str, payload: object) -> Any:
    """POST JSON, and return the JSON of the response. Raises `urllib.error.HTTPError`."""
    request = urllib.request.Request(
        url, json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)
