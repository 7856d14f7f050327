"""Run by the tests: `server.py SOCKET` loads the program once, and forks processes on request.

A small training then takes one second of CPU time instead of five: the rest is imports. The server
ends, and its processes with it, when its standard input does.
"""

import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

MAX_REQUEST_BYTES = 1 << 20


@dataclass(frozen=True)
class Request:
    """What `client.Forked` sends."""

    arguments: list[str]
    environment: dict[str, str]
    folder: str
    executable: str | None
    descriptors: list[int] = field(default_factory=list)
    """Standard input, output and error, and the client's namespaces."""


class Server:
    """Forks processes, and tells each client how its process has ended."""

    def __init__(self, path: str) -> None:
        self._clients: dict[int, socket.socket] = {}  # by the processes that they have asked for
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(path)
        self._listener.listen(64)
        self._woken, self._wakes = socket.socketpair()
        for end in (self._woken, self._wakes):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for readable in (self._listener, self._woken, sys.stdin):
            self._selector.register(readable, selectors.EVENT_READ)

    def serve(self) -> Request | None:
        """Return the request in a process forked for it, and None at the end of all."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is sys.stdin:
                    self._kill_all()
                    return None
                if key.fileobj is self._listener:
                    client, _ = self._listener.accept()
                    self._selector.register(client, selectors.EVENT_READ)
                elif key.fileobj is self._woken:
                    self._woken.recv(4096)
                    self._tell_of_the_ended()
                else:
                    assert isinstance(key.fileobj, socket.socket)
                    request = self._hear(key.fileobj)
                    if request is not None:
                        return request

    def _hear(self, client: socket.socket) -> Request | None:
        """Fork a process for a new client; kill that of a client that has gone."""
        message, descriptors, _, _ = socket.recv_fds(client, MAX_REQUEST_BYTES, 8)
        if not message:
            self._forget(client)
            return None
        load()
        pid = os.fork()
        if pid == 0:
            self._leave()
            return Request(**json.loads(message), descriptors=descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        self._clients[pid] = client
        client.send(str(pid).encode())
        return None

    def _forget(self, client: socket.socket) -> None:
        for pid, own in list(self._clients.items()):
            if own is client:
                del self._clients[pid]
                os.kill(pid, signal.SIGKILL)
        self._selector.unregister(client)
        client.close()

    def _tell_of_the_ended(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            client = self._clients.pop(pid, None)
            if client is None:
                continue
            with suppress(OSError):  # it has gone in the meantime
                client.send(str(os.waitstatus_to_exitcode(status)).encode())

    def _kill_all(self) -> None:
        for pid in self._clients:
            os.kill(pid, signal.SIGKILL)

    def _leave(self) -> None:
        """Close in a forked process what is the server's."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._selector.close()
        for own in (self._listener, self._woken, self._wakes, *self._clients.values()):
            own.close()


def load() -> None:
    """Load what a training imports on its way."""
    import mlflow.pyfunc  # noqa: F401
    import pandas as pd  # noqa: F401
    import scipy.optimize  # noqa: F401
    from PIL import Image

    from train_pytorch_model.image_classifier.architectures import torchvision_models
    from train_pytorch_model.stories import evaluate, score, train  # noqa: F401

    torchvision_models()
    import timm  # noqa: F401 # after torchvision's, whose models it would load with the compiler

    Image.init()


def become(request: Request) -> None:
    """Take over what a new process has from its parent."""
    import torch

    os.setsid()
    *streams, network, host_name = request.descriptors
    _enter("net", network)
    _enter("uts", host_name)
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.executable = request.executable or sys.executable
    threads = request.environment.get("OMP_NUM_THREADS")
    if threads is not None:
        torch.set_num_threads(int(threads))  # OpenMP has read the server's variable


def _enter(kind: str, namespace: int) -> None:
    """Enter a client's namespace; only root may enter one that is not its own."""
    own = Path(f"/proc/self/ns/{kind}").stat()
    if os.fstat(namespace).st_ino != own.st_ino:
        assert ctypes.CDLL(None, use_errno=True).setns(namespace, 0) == 0, ctypes.get_errno()
    os.close(namespace)


def run(arguments: list[str]) -> None:
    """Run a command line of Python: `-m MODULE`, `-c CODE` or a file.

    Of the options before it, `-u` and `-W ignore` are known.
    """
    unbuffered = arguments[:1] == ["-u"]
    if unbuffered:
        arguments = arguments[1:]
    if arguments[:2] == ["-W", "ignore"]:
        warnings.simplefilter("ignore")
        arguments = arguments[2:]
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stdout.reconfigure(write_through=unbuffered)
    sys.stderr = os.fdopen(2, "w", closefd=False, errors="backslashreplace")
    sys.stderr.reconfigure(line_buffering=True)
    _customize()
    kind = arguments[0]
    if kind in ("-m", "-c"):
        sys.path[0] = ""
        sys.argv = arguments[1:] if kind == "-m" else ["-c", *arguments[2:]]
    else:
        sys.path[0] = str(Path(kind).parent)
        sys.argv = arguments
    main = ModuleType("__main__")
    sys.modules["__main__"] = main  # not the server, which a decoder process would load again
    if kind == "-m":
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    elif kind == "-c":
        exec(compile(arguments[1], "<string>", "exec"), vars(main))
    else:
        runpy.run_path(kind, run_name="__main__")


def _customize() -> None:
    """Do what the interpreter does at its start with what PYTHONPATH names."""
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[1:1] = [folder for folder in folders if folder and folder not in sys.path]
    sys.modules.pop("sitecustomize", None)  # of the server, as Debian's Python has one
    with suppress(ImportError):
        importlib.import_module("sitecustomize")


def start() -> None:
    """Serve; in a forked process, run what it was forked for."""
    request = Server(sys.argv[1]).serve()
    if request is not None:
        become(request)
        run(request.arguments)


if __name__ == "__main__":
    start()
