"""Free local ports for servers in other processes."""

import itertools
import os
import socket
from contextlib import suppress

# Below the ephemeral ports, which start at 32,768. Each test process has a range of 1,000 ports.
_PORTS = itertools.count(10_000 + os.getpid() % 20 * 1_000)


def free_port() -> int:
    """A local port that is not in use and not ephemeral; a different one on each call."""
    while True:
        port = next(_PORTS)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
