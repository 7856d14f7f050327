"""Waiting for another process: for its answer at an address, or for a call that needs it."""

import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextvars import copy_context
from typing import TypeVar

from train_pytorch_model.machine.console import logger

T = TypeVar("T")

SILENT_S = 15.0  # after which a process that waits says so
RETRY_S = 0.5
CONNECTION_TIMEOUT_S = 5.0


def check_loopback() -> None:
    """Raise `OSError` if this machine cannot reach itself.

    Called before torch tries, whose C++ logs that.
    """
    with socket.create_server(("localhost", 0)) as server:
        address = ("localhost", server.getsockname()[1])
        socket.create_connection(address, CONNECTION_TIMEOUT_S).close()


def wait_for_answer(host: str, port: int, timeout_s: float) -> None:
    """Return when a process answers at the address.

    Raises `OSError` if none does in that many seconds.
    """
    started_at = time.monotonic()
    is_announced = False
    while True:
        try:
            return socket.create_connection((host, port), CONNECTION_TIMEOUT_S).close()
        except OSError as error:
            waited_s = time.monotonic() - started_at
            if waited_s > timeout_s:
                raise
            if waited_s > SILENT_S and not is_announced:
                is_announced = True  # not with the logger, as only rank 0 shows what it logs
                print(f"Waiting for rank 0 at {host}:{port}: {error}.", file=sys.stderr, flush=True)
        time.sleep(RETRY_S)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call in a thread that does not keep the process from ending, such as by Ctrl-C."""
    future: Future[T] = Future()
    context = copy_context()  # which says how messages are worded

    def work() -> None:
        try:
            future.set_result(context.run(call))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def wait_aloud(call: Callable[[], T], waiting: str) -> T:
    """Return what `call` returns; log `waiting` if that takes long.

    Ctrl-C can end it meanwhile.
    """
    future = in_thread(call)
    if wait([future], SILENT_S).not_done:
        logger.warning(waiting)
    return future.result()
