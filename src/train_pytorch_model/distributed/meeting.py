"""Where the processes of a run meet: tried before torch tries, whose C++ logs each failed attempt."""

import queue
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from train_pytorch_model.machine.console import logger

SILENT_S = 15.0  # after which a process that waits says so
RETRY_S = 0.5
CONNECTION_TIMEOUT_S = 5.0

T = TypeVar("T")


def check_loopback() -> None:
    """Raise `OSError` if this machine cannot reach itself."""
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(("localhost", server.getsockname()[1]), CONNECTION_TIMEOUT_S).close()


def wait_for_answer(host: str, port: int, timeout_s: float) -> None:
    """Return when a process answers at the address. Raises `OSError` if none does in that many seconds."""
    started_at, is_said = time.monotonic(), False
    while True:
        try:
            return socket.create_connection((host, port), CONNECTION_TIMEOUT_S).close()
        except OSError as error:
            waited_s = time.monotonic() - started_at
            if waited_s > timeout_s:
                raise
            if waited_s > SILENT_S and not is_said:
                is_said = True  # not with the logger, as only rank 0 shows what it logs
                print(f"Waiting for rank 0 at {host}:{port}: {error}.", file=sys.stderr, flush=True)
        time.sleep(RETRY_S)


def wait_aloud(call: Callable[[], T], waiting: str) -> T:
    """Return what `call` returns; log `waiting` if that takes long, and let Ctrl-C end it meanwhile."""
    results: queue.SimpleQueue[T | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            results.put(call())
        except BaseException as error:
            results.put(error)

    threading.Thread(target=work, daemon=True, name="meeting").start()
    try:
        result = results.get(timeout=SILENT_S)
    except queue.Empty:
        logger.warning(waiting)
        result = results.get()
    if isinstance(result, BaseException):
        raise result
    return result
