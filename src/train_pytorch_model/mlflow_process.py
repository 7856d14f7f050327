"""MLflow in a process of its own, which imports it while PyTorch is imported here.

That takes two to four seconds of computing with a new store, and in a thread of this process it would take
them from the training: a process that steps back takes what is left of the processors.

Requests go to it as lines of JSON, each with a number, and replies come back with that number, in any order:
a server that does not answer one call holds up no other.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from train_pytorch_model.priority import step_back
from train_pytorch_model.process_table import python_command

PROGRAM = "from train_pytorch_model.mlflow_process import main; main()"
ENDING_S = 1.0  # so long its end is waited for: milliseconds, unless it is making a store
MAKING_S = 60.0  # so long a process that is told to end goes on making one: nobody can mend half of it
MAX_REASON = 200  # characters

# By default a dead server holds each call for four minutes.
REQUESTS = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "5", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}

Reply = Mapping[str, Any]
"""Of a call: its `value`, or the `reason` why there is none, of an `OSError` with `errno` and `filename`."""


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
            process_group=0,  # Ctrl-C is not for it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._replies = self._process.stdin, self._process.stdout
        self._lock = threading.Lock()
        self._pending: dict[int, Future[Reply | None]] = {}
        self._count = 0
        self._is_over = False
        self._is_told_to_end = False
        self._reader = threading.Thread(target=self._read_replies, daemon=True, name="mlflow replies")
        self._reader.start()

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
                with suppress(OSError):  # then there is no reply
                    print(json.dumps([self._count, function, arguments]), file=self._requests, flush=True)
        reply = future.result()
        if reply is None and self._is_told_to_end:
            raise MlflowError("the training is over")
        return _value(_reply(function, arguments) if reply is None else reply)

    def end(self) -> None:
        """Have the process end, whatever calls it waits for."""
        self._is_told_to_end = True
        with suppress(OSError):  # what was not taken any more
            self._requests.close()
        self._reader.join(ENDING_S)

    def _read_replies(self) -> None:
        with self._replies:
            for line in self._replies:
                with suppress(ValueError):  # half a line, as the last of a process that was killed
                    number, reply = json.loads(line)
                    self._pending.pop(number).set_result(reply)
        with self._lock:
            self._is_over = True
        for future in self._pending.values():
            future.set_result(None)
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
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for what MLflow prints
    step_back()
    is_loaded, lock = threading.Event(), threading.Lock()
    threading.Thread(target=_load, args=(is_loaded,), daemon=True).start()
    for line in sys.stdin:
        number, function, arguments = json.loads(line)
        serve = (number, function, arguments, is_loaded, replies, lock)
        threading.Thread(target=_serve, args=serve, daemon=True).start()
    is_loaded.wait(MAKING_S)
    os._exit(0)  # calls that hang, and MLflow's own threads, are not waited for


def _load(is_loaded: threading.Event) -> None:
    """Import MLflow and make its store. Where that fails, every call says so."""
    with suppress(Exception):
        from train_pytorch_model import mlflow_calls

        mlflow_calls.make_store()
    is_loaded.set()


def _serve(
    number: int,
    function: str,
    arguments: Sequence[object],
    is_loaded: threading.Event,
    replies: TextIO,
    lock: threading.Lock,
) -> None:
    is_loaded.wait()
    line = json.dumps([number, _reply(function, arguments)])
    with lock:
        print(line, file=replies, flush=True)


def _reply(function: str, arguments: Sequence[object]) -> Reply:
    for name, value in REQUESTS.items():
        os.environ.setdefault(name, value)
    try:
        from train_pytorch_model import mlflow_calls

        return {"value": getattr(mlflow_calls, function)(*arguments)}
    except Exception as error:  # whatever a server, a network or a client library comes up with
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:MAX_REASON]}"
        if isinstance(error, OSError) and error.errno is not None:
            file = None if error.filename is None else str(error.filename)
            return {"reason": reason, "errno": error.errno, "filename": file}
        return {"reason": reason}


def _value(reply: Reply) -> Any:
    if "errno" in reply:
        raise OSError(reply["errno"], os.strerror(reply["errno"]), reply["filename"])
    if "reason" in reply:
        raise MlflowError(reply["reason"])
    return reply["value"]
