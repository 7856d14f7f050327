"""Which processes of a run do not respond: those of this host by their ids; others cannot be asked."""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train_pytorch_model.machine.process_table import PROCESSES, is_stopped, start_of

EXIT_TIMEOUT_S = 15.0  # for a failed process to exit: seconds with PyTorch loaded, more on a busy machine
POLL_S = 0.1


@dataclass(frozen=True)
class Peer:
    """One process of a run."""

    host: str
    pid: int
    started: str | None
    """Start time in clock ticks, as its host reports it; None if unknown."""

    @classmethod
    def of_this_process(cls) -> "Peer":
        """Return this process as the others see it."""
        return cls(socket.gethostname(), os.getpid(), start_of(os.getpid()))

    @property
    def failure(self) -> str:
        """Why it does not respond, such as "has ended"; empty if it does, as far as this process can tell."""
        if self.host != socket.gethostname() or self.started is None or not PROCESSES.exists():
            return ""
        if start_of(self.pid) != self.started:
            return "has ended"
        return "is stopped" if is_stopped(self.pid) else ""


def find_failures(peers: Sequence[Peer]) -> Mapping[int, str]:
    """Return rank → why that process does not respond, as far as this one can tell.

    Call it when a collective has failed. A process whose connections are closed may not have exited yet.
    """
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    while True:
        failures = {rank: failure for rank, peer in enumerate(peers) if (failure := peer.failure)}
        if failures or time.monotonic() > deadline or _is_only_one_here(peers):
            return failures
        time.sleep(POLL_S)


def _is_only_one_here(peers: Sequence[Peer]) -> bool:
    return sum(peer.host == socket.gethostname() for peer in peers) == 1
