"""The processes of a distributed run: rank and device, collectives, and how they meet and part."""

import functools
import socket
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train_pytorch_model.machine import cores
from train_pytorch_model.machine.cores import PROCESSES
from train_pytorch_model.machine.liveness import is_stopped, start_of
from train_pytorch_model.machine.threads import ONE_THREAD, Threads

EXIT_TIMEOUT_S = (
    15.0  # for a failed process to exit: seconds with PyTorch loaded, more on a busy machine
)
POLL_S = 0.1

T = TypeVar("T")


@dataclass(frozen=True)
class Peer:
    """One process of a run."""

    host: str
    pid: int
    started: str | None  # start time in clock ticks, as its host reports it; None if unknown

    @property
    def failure(self) -> str:
        """Why it does not respond, "has ended" or "is stopped"; empty if it does or on another
        host.
        """
        if self.host != socket.gethostname() or self.started is None or not PROCESSES.exists():
            return ""
        if start_of(self.pid) != self.started:
            return "has ended"
        return "is stopped" if is_stopped(self.pid) else ""


@dataclass(frozen=True)
class World:
    """All processes of a run, seen from one of them. With a single process, collectives do nothing."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    peers: tuple[Peer, ...] = ()  # all processes, by rank; empty in a run of a single process
    threads: Threads = ONE_THREAD  # with how many PyTorch begins to compute

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes files for all."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """The number of CPU cores that are this process's share of its machine."""
        return max(1, cores.usable_cores() // self.local_size)

    def use_threads(self, recorded: int) -> bool:
        """Use as many threads as an earlier start did, for the same bits; False if that cannot be."""
        if self.threads.is_fixed or not 0 < recorded <= self.cores:
            return False
        torch.set_num_threads(recorded)
        return True

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes, on every process."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values)
        return values

    def max(self, values: Tensor) -> Tensor:
        """Return the element-wise maximum over all processes, on every process."""
        if self.size > 1:
            values = values.clone()
            dist.all_reduce(values, dist.ReduceOp.MAX)
        return values

    def broadcast(self, value: T) -> T:
        """Return the main process's value, on every process."""
        if self.size == 1:
            return value
        shared = [value]
        dist.broadcast_object_list(shared)
        return shared[0]

    def gather(self, values: Sequence[T]) -> list[T]:
        """Return the values of all processes, in rank order, on every process."""
        if self.size == 1:
            return list(values)
        gathered: list[Sequence[T]] = [()] * self.size
        dist.all_gather_object(gathered, list(values))
        return [value for values in gathered for value in values]

    def gather_on_main(self, values: Sequence[T]) -> list[T]:
        """Return the values of all processes, in rank order, on the main process; elsewhere
        nothing.
        """
        if self.size == 1:
            return list(values)
        gathered: list[Sequence[T]] | None = [()] * self.size if self.is_main else None
        dist.gather_object(list(values), gathered)
        return [value for values in gathered or () for value in values]

    @functools.cached_property
    def failures(self) -> Mapping[int, str]:
        """Rank → why it does not respond, determined once a collective has failed: survivors exit,
        too.
        """
        deadline = time.monotonic() + EXIT_TIMEOUT_S
        is_only_one_here = sum(peer.host == socket.gethostname() for peer in self.peers) == 1
        while True:
            failures = {
                rank: failure for rank, peer in enumerate(self.peers) if (failure := peer.failure)
            }
            if failures or time.monotonic() > deadline or is_only_one_here:
                return failures
            time.sleep(POLL_S)

    def describe_lost(self) -> str:
        """Return the processes that do not respond, for the end of an error message."""
        lost = [(rank, self.peers[rank], failure) for rank, failure in self.failures.items()]
        texts = [
            f"rank {rank} (process {peer.pid} on {peer.host}) {failure}"
            for rank, peer, failure in lost
        ]
        return ", ".join(texts) or "another process of the run does not answer"

    def average_(self, values: Tensor) -> None:
        """Replace values by their mean over all processes, in place, without waiting for the
        device.
        """
        dist.all_reduce(values)
        values.div_(self.size)

    def share_(self, network: nn.Module) -> None:
        """Replace the weights and statistics of all processes by rank 0's, in place."""
        for tensor in network.state_dict().values():
            dist.broadcast(tensor, 0)

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        if self.size > 1:
            dist.barrier()

    def replicate(self, network: nn.Module) -> nn.Module:
        """Return the network, of several processes in DDP: averages gradients, has rank 0's
        weights.
        """
        if self.size == 1:
            return network
        # Raised for gradients of 1 x 1 kernels, whose memory layout is right whatever their strides
        # say.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view", UserWarning)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers is being renamed
            return DistributedDataParallel(
                network,
                device_ids=[self.device] if self.device.type == "cuda" else None,
                broadcast_buffers=False,  # buffers are averaged before each validation
                gradient_as_bucket_view=True,
            )

    def gradient_sync(self, network: nn.Module, is_last: bool) -> AbstractContextManager[None]:
        """Return the context of a backward pass: only a step's last one averages gradients over
        processes.
        """
        if is_last or not isinstance(network, DistributedDataParallel):
            return nullcontext()
        context: AbstractContextManager[None] = network.no_sync()
        return context


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether a collective failed because another process is gone, rather than for another
    reason.
    """
    return isinstance(error, dist.DistError) or "gloo" in str(error)
