"""The processes of a run, and which of them do not respond."""

import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from train_pytorch_model.machine.cores import PROCESSES
from train_pytorch_model.machine.liveness import is_stopped, start_of

# For a failed process to exit: seconds with PyTorch loaded, more on a busy machine.
EXIT_TIMEOUT_S = 15.0
POLL_S = 0.1


@dataclass(frozen=True)
class Peer:
    """One process of a run."""

    host: str
    pid: int
    started: str | None  # start time in clock ticks, as its host reports it; None if unknown

    @property
    def failure(self) -> str:
        """Why it does not respond, "has ended" or "is stopped".

        Empty if it does, or is on another host.
        """
        if self.host != socket.gethostname() or self.started is None or not PROCESSES.exists():
            return ""
        if start_of(self.pid) != self.started:
            return "has ended"
        return "is stopped" if is_stopped(self.pid) else ""


def find_failures(peers: Sequence[Peer]) -> Mapping[int, str]:
    """Return rank → why it does not respond, as soon as there is one that does not.

    Waits for that some seconds, unless this process is the only one on its host.
    """
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    host = socket.gethostname()
    is_only_one_here = sum(peer.host == host for peer in peers) == 1
    while True:
        failures = {rank: peer.failure for rank, peer in enumerate(peers)}
        failures = {rank: failure for rank, failure in failures.items() if failure}
        if failures or time.monotonic() > deadline or is_only_one_here:
            return failures
        time.sleep(POLL_S)
