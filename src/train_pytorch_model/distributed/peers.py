"""The processes of a run as they see each other: which share a machine, which do not respond."""

import os
import socket
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from train_pytorch_model.machine.cores import PROCESSES
from train_pytorch_model.machine.identity import kernel_id, machine_id, process_namespace
from train_pytorch_model.machine.liveness import is_stopped, start_of

# For a failed process to exit: seconds with PyTorch loaded, more on a busy machine.
EXIT_TIMEOUT_S = 15.0
POLL_S = 0.1


@dataclass(frozen=True)
class Peer:
    """One process of a run, as it describes itself to the others."""

    host: str
    pid: int
    started: str | None  # start time in clock ticks, as its host reports it; None if unknown
    kernel: str = ""  # the next three are those of `machine.identity`
    machine: str = ""
    namespace: str = ""
    gpu: str = ""  # the unique id of the one it computes on; empty without CUDA

    @classmethod
    def of_this_process(cls, gpu: str = "") -> Self:
        """Return this process, which computes on that GPU."""
        pid = os.getpid()
        identity = (kernel_id(), machine_id(), process_namespace())
        return cls(socket.gethostname(), pid, start_of(pid), *identity, gpu)

    def sees(self, other: "Peer") -> bool:
        """Return whether one finds the other by its process id, and can open what it has opened."""
        return (self.machine, self.namespace) == (other.machine, other.namespace)

    @property
    def failure(self) -> str:
        """Why it does not respond, "has ended" or "is stopped".

        Empty if it does, or if this process cannot see it.
        """
        is_visible = self.sees(Peer.of_this_process()) and PROCESSES.exists()
        if not is_visible or self.started is None:
            return ""
        if start_of(self.pid) != self.started:
            return "has ended"
        return "is stopped" if is_stopped(self.pid) else ""


def place_of(rank: int, peers: Sequence[Peer], said_size: int) -> tuple[int, int]:
    """Return a process's number on its machine, from 0, and how many share its cores.

    The launcher has said that these are `said_size`. It may not know of all, as when two launchers
    share a machine. It may know better, if each process has a container: then those of this kernel
    count.
    """
    here = [number for number, peer in enumerate(peers) if peer.machine == peers[rank].machine]
    on_kernel = sum(peer.kernel == peers[rank].kernel for peer in peers)
    return here.index(rank), max(len(here), min(said_size, on_kernel))


def on_one_gpu(peers: Sequence[Peer]) -> Sequence[int]:
    """Return the ranks that compute on the first GPU that several have taken; empty if none is."""
    ranks = defaultdict(list)
    for rank, peer in enumerate(peers):
        if peer.gpu:
            ranks[peer.kernel, peer.gpu].append(rank)
    return next((several for several in ranks.values() if len(several) > 1), [])


def find_failures(peers: Sequence[Peer]) -> Mapping[int, str]:
    """Return rank → why it does not respond, as soon as there is one that does not.

    Waits for that some seconds, unless this process sees no other.
    """
    deadline = time.monotonic() + EXIT_TIMEOUT_S
    this = Peer.of_this_process()
    sees_no_other = sum(peer.sees(this) for peer in peers) == 1
    while True:
        failures = {rank: peer.failure for rank, peer in enumerate(peers)}
        failures = {rank: failure for rank, failure in failures.items() if failure}
        if failures or time.monotonic() > deadline or sees_no_other:
            return failures
        time.sleep(POLL_S)
