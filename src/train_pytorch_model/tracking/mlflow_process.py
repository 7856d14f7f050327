"""MLflow in a process of its own, which imports it while PyTorch is imported here.

Importing it and creating a store take two to four seconds of CPU time. In a thread of this process that would
slow training down; a process of its own runs at low priority.

Requests are lines of JSON, each with a number that the reply repeats. Replies come in any order, so a call
that a server does not answer does not block others.
"""

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any

from train_pytorch_model.machine.priority import lower_priority
from train_pytorch_model.machine.process_table import python_command

PROGRAM = "from train_pytorch_model.tracking.mlflow_process import main; main()"
SAVE_MODEL = "save_model"  # the only call that needs no store, and that training waits for
SAVING_S = 120.0  # its timeout; it usually takes one or two seconds
ENDING_S = 1.0  # to wait for the process to exit: milliseconds suffice, unless it is creating a store
MAKING_S = 60.0  # for an exiting process to finish creating a store: half of one cannot be repaired
MAX_REASON = 200  # characters

# By default a dead server blocks each call for four minutes.
REQUESTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}

Reply = Mapping[str, Any]
"""The `value` of a call, or its `reason` and `traceback` if it failed, with `os_error` for an `OSError`."""


class MlflowError(Exception):
    """A call failed, for any reason: the server, the network or MLflow itself."""


class Mlflow:
    """Calls MLflow in this process."""

    def call(self, function: str, *arguments: object) -> Any:
        """Call this function of `mlflow_calls`. Raises `OSError` or `MlflowError`."""
        return _value(_reply(function, arguments))


class MlflowProcess(Mlflow):
    """Calls MLflow in a separate process, or in this one if that has died."""

    def __init__(self) -> None:
        """Start the process. Raises `OSError` if that is not possible."""
        self._process = subprocess.Popen(
            python_command(PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
            errors="replace",
            process_group=0,  # keeps Ctrl-C from reaching it
        )
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Reply | None]] = {}
        self._count = 0
        self._is_over = False
        self._is_told_to_end = False
        self._requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_replies, daemon=True, name="mlflow replies")
        self._reader.start()
        # In a thread, because writing blocks when the process is stopped and the pipe is full.
        threading.Thread(target=self._write_requests, daemon=True, name="mlflow requests").start()

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def call(self, function: str, *arguments: object) -> Any:
        future: Future[Reply | None] = Future()
        with self._lock:
            self._count += 1
            if self._is_over:
                future.set_result(None)
            else:
                self._pending[self._count] = future
                self._requests.put(json.dumps([self._count, function, arguments]) + "\n")
        try:
            reply = future.result(SAVING_S if function == SAVE_MODEL else None)
        except TimeoutError:
            self._process.kill()
            reply = None
        if reply is None and self._is_told_to_end:
            raise MlflowError("the training is over")
        return _value(_reply(function, arguments) if reply is None else reply)

    def end(self) -> None:
        """Make the process exit, even if calls are pending."""
        self._is_told_to_end = True
        self._requests.put(None)
        self._reader.join(ENDING_S)

    def _write_requests(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError), pipe:  # the process is dead, and will not reply
            while line := self._requests.get():
                pipe.write(line)
                pipe.flush()

    def _read_replies(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            with pipe:
                for line in pipe:
                    # Skips what was printed before `main`, and the partial line of a process that was killed.
                    with suppress(ValueError, TypeError, KeyError):
                        number, reply = json.loads(line)
                        self._pending.pop(number).set_result(reply)
        finally:
            with self._lock:
                self._is_over = True
            for future in self._pending.values():
                future.set_result(None)
            self._requests.put(None)
            self._process.wait()


@contextmanager
def mlflow_beside() -> Iterator[Mlflow]:
    """Provide calls to MLflow for a `with`; in this process if no other can be started."""
    process = None
    if os.name == "posix":
        with suppress(OSError):
            process = MlflowProcess()
    try:
        yield process or Mlflow()
    finally:
        if process:
            process.end()


def main() -> None:
    """Serve the parent process until it closes the pipe or dies."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # it exits when the pipe is closed
        signal.signal(number, signal.SIG_IGN)
    server = _Server()
    for line in sys.stdin:
        if not line.endswith("\n"):  # the writer was killed mid-line
            break
        threading.Thread(target=server.serve, args=json.loads(line), daemon=True).start()
    server.end()


class _Server:
    """Answers calls, each in a thread of its own, as soon as MLflow is imported."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w", encoding="ascii")
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(self._nowhere if sys.stderr is None else 2, 1)  # for what MLflow prints
        self._is_loaded, self._has_store = threading.Event(), threading.Event()
        self._making, self._replying = threading.Lock(), threading.Lock()
        threading.Thread(target=self._load, daemon=True).start()

    def serve(self, number: int, function: str, arguments: Sequence[object]) -> None:
        """Carry out a request and reply to it."""
        if function == SAVE_MODEL:
            self._is_loaded.wait()
        else:
            lower_priority()
            self._has_store.wait()
        line = json.dumps([number, _reply(function, arguments)])
        with self._replying, suppress(OSError):
            print(line, file=self._replies, flush=True)

    def end(self) -> None:
        """Exit without waiting for hanging calls or MLflow's own threads."""
        for stream in (1, 2):  # readers of the training's output wait until no process has it open
            os.dup2(self._nowhere, stream)
        self._making.acquire(timeout=MAKING_S)
        os._exit(0)

    def _load(self) -> None:
        """Import MLflow and create its store. If that fails, every call reports it."""
        lower_priority()
        try:
            with suppress(Exception):
                from train_pytorch_model.tracking import mlflow_calls

                with self._making:
                    self._is_loaded.set()
                    mlflow_calls.make_store()
        finally:
            self._is_loaded.set()
            self._has_store.set()


def _reply(function: str, arguments: Sequence[object]) -> Reply:
    for name, value in REQUESTS.items():
        os.environ.setdefault(name, value)
    try:
        from train_pytorch_model.tracking import mlflow_calls

        return {"value": getattr(mlflow_calls, function)(*arguments)}
    except Exception as error:  # servers, networks and client libraries raise all kinds
        reply = {
            "reason": f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON]}",
            "traceback": traceback.format_exc(),
        }
        if isinstance(error, OSError) and error.errno is not None:
            file = None if error.filename is None else str(error.filename)
            return {**reply, "os_error": [error.errno, os.strerror(error.errno), file]}
        return reply


def _value(reply: Reply) -> Any:
    if "os_error" in reply:
        raise OSError(*reply["os_error"])
    if "reason" in reply:
        error = MlflowError(reply["reason"])
        error.add_note(reply["traceback"])
        raise error
    return reply["value"]
