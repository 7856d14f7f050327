"""Ask the zygote for a process.

Imports nothing that takes time, since every stand-in for Python loads this.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

ADDRESS = "TESTS_ZYGOTE"
"""The environment variable with the path of the zygote's socket, for all processes of a session."""

NAMESPACES = ("net", "uts")  # of simulated hosts: the network, and the host's name


class Forked:
    """A process that runs a Python command line. It is killed when nobody waits for it any more."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        streams: tuple[int, int, int],
        executable: str | None = None,
    ) -> None:
        """Start the process in this one's working directory and namespaces.

        Args:
            arguments: What follows `python` on a command line.
            environment: All variables of the process.
            streams: Descriptors of its standard input, output and error.
            executable: Its `sys.executable`; by default the zygote's, which is Python itself.
        """
        self._status: int | None = None
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.connect(os.environ[ADDRESS])
        request = {
            "arguments": list(arguments),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
            "executable": executable,
        }
        own = [os.open(f"/proc/self/ns/{name}", os.O_RDONLY) for name in NAMESPACES]
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], [*streams, *own])
        finally:
            for descriptor in own:
                os.close(descriptor)
        self.pid = int(self._socket.recv(64))

    def wait(self, timeout_s: float | None = None) -> int | None:
        """Return the exit status, -n after signal n; None if it has not ended in time."""
        if self._status is None:
            self._socket.settimeout(timeout_s)
            try:
                self._status = int(self._socket.recv(64))
            except (TimeoutError, BlockingIOError):
                return None
            self._socket.close()
        return self._status

    def __del__(self) -> None:
        """Let the zygote know that nobody waits."""
        self._socket.close()
