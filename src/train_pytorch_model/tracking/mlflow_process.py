"""MLflow in a process of its own, which imports it while PyTorch is imported here.

That takes two to four seconds of computing with a new store, and in a thread of this process it would take
them from the training: there it takes what is left of the processors.

Requests go to it as lines of JSON, each with a number, and replies come back with that number, in any order:
a server that does not answer one call holds up no other.
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

from train_pytorch_model.machine.priority import step_back
from train_pytorch_model.machine.process_table import python_command

PROGRAM = "from train_pytorch_model.tracking.mlflow_process import main; main()"
SAVE_MODEL = "save_model"  # the call that needs no store, and that a training waits for
SAVING_S = 120.0  # that it may take; it takes one or two
ENDING_S = 1.0  # that its end is waited for: it comes in milliseconds, unless it is making a store
MAKING_S = 60.0  # that a process which is told to end goes on making one: nobody can mend half of it
MAX_REASON = 200  # characters

# By default a dead server holds each call for four minutes.
REQUESTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}

Reply = Mapping[str, Any]
"""Of a call: its `value`, or why there is none: `reason`, `traceback`, and of an `OSError` its parts."""


class MlflowError(Exception):
    """A call has failed, for whatever reason a server, a network or MLflow comes up with."""


class Mlflow:
    """Calls MLflow in this process."""

    def call(self, function: str, *arguments: object) -> Any:
        """What this function of `mlflow_calls` returns. Raises `OSError` or `MlflowError`."""
        return _value(_reply(function, arguments))


class MlflowProcess(Mlflow):
    """Calls it in a process; where that has died, in this one."""

    def __init__(self) -> None:
        """Raises `OSError` where there can be no process."""
        self._process = subprocess.Popen(
            python_command(PROGRAM),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="ascii",
            errors="replace",
            process_group=0,  # Ctrl-C is not for it
        )
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Reply | None]] = {}
        self._count = 0
        self._is_over = False
        self._is_told_to_end = False
        self._requests: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read_replies, daemon=True, name="mlflow replies")
        self._reader.start()
        # One that is stopped takes no more than the pipe holds.
        threading.Thread(target=self._write_requests, daemon=True, name="mlflow requests").start()

    @property
    def pid(self) -> int:
        """Of the process."""
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
        """Have the process end, whatever calls it waits for."""
        self._is_told_to_end = True
        self._requests.put(None)
        self._reader.join(ENDING_S)

    def _write_requests(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        with suppress(OSError), pipe:  # it is dead, and there is no reply
            while line := self._requests.get():
                pipe.write(line)
                pipe.flush()

    def _read_replies(self) -> None:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            with pipe:
                for line in pipe:
                    # Or what was printed before `main`, or half a line of a process that was killed.
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
    """For a `with` in which MLflow is called; in this process where there can be no other."""
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
    """Serve the process that has started this one until it closes the pipe, or is no more."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the end of the pipe tells it to end
        signal.signal(number, signal.SIG_IGN)
    server = _Server()
    for line in sys.stdin:
        if not line.endswith("\n"):  # who wrote it has been ended in the middle
            break
        threading.Thread(target=server.serve, args=json.loads(line), daemon=True).start()
    server.end()


class _Server:
    """Answers calls, each in a thread of its own, as soon as MLflow is there."""

    def __init__(self) -> None:
        self._replies = os.fdopen(os.dup(1), "w", encoding="ascii")
        self._nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(self._nowhere if sys.stderr is None else 2, 1)  # for what MLflow prints
        self._is_loaded, self._has_store = threading.Event(), threading.Event()
        self._making, self._replying = threading.Lock(), threading.Lock()
        threading.Thread(target=self._load, daemon=True).start()

    def serve(self, number: int, function: str, arguments: Sequence[object]) -> None:
        """Reply to a request."""
        if function == SAVE_MODEL:
            self._is_loaded.wait()
        else:
            step_back()
            self._has_store.wait()
        line = json.dumps([number, _reply(function, arguments)])
        with self._replying, suppress(OSError):
            print(line, file=self._replies, flush=True)

    def end(self) -> None:
        """End this process: calls that hang, and MLflow's own threads, are not waited for."""
        for stream in (1, 2):  # who reads what the training prints waits for all who could print there
            os.dup2(self._nowhere, stream)
        self._making.acquire(timeout=MAKING_S)
        os._exit(0)

    def _load(self) -> None:
        """Import MLflow and make its store. Where that fails, every call says so."""
        step_back()
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
    except Exception as error:  # whatever a server, a network or a client library comes up with
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
