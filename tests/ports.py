"""Ports of this machine for what other processes listen on."""

import itertools
import os
import socket
from contextlib import suppress

# Systems give ports from 32,768 up to whoever asks for any. A thousand for each process of the tests.
_PORTS = itertools.count(10_000 + os.getpid() % 20 * 1_000)


def free_port() -> int:
    """A port of this machine that nobody listens on, and nobody is given by chance; another each time."""
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
