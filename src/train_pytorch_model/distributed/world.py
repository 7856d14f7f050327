"""The processes of a run as one of them sees them: its rank and device, and collectives."""

import functools
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from train_pytorch_model.distributed.peers import Peer, find_failures
from train_pytorch_model.machine import cores
from train_pytorch_model.machine.threads import ONE_THREAD, Threads

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """All processes of a run, seen from one of them.

    With a single process, collectives do nothing.
    """

    rank: int
    size: int
    local_rank: int  # on its machine, by what the processes see of each other
    local_size: int  # processes that share the cores of its machine
    device: torch.device
    peers: tuple[Peer, ...] = ()  # all processes, by rank; empty in a run of a single process
    threads: Threads = ONE_THREAD  # with how many PyTorch begins to compute

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes files for all."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """The number of CPU cores for this process: those of its machine, divided by its ranks."""
        return max(1, cores.usable_cores() // self.local_size)

    @property
    def memory_sharers(self) -> Sequence[int]:
        """The ranks of a machine, with this one, that can open each other's files in memory."""
        if self.size == 1:
            return [self.rank]
        this = self.peers[self.rank]
        return [rank for rank, peer in enumerate(self.peers) if peer.sees(this)]

    @property
    def memory_files(self) -> int:
        """How many files in memory this machine needs, so that each process has one to share."""
        if not hasattr(os, "memfd_create"):  # macOS and Windows
            return self.local_size
        if self.size == 1:
            return 1
        machine = self.peers[self.rank].machine
        return len({peer.namespace for peer in self.peers if peer.machine == machine})

    def use_threads(self, recorded: int) -> bool:
        """Use as many threads as an earlier start did, for the same bits.

        Return False if that cannot be.
        """
        if self.threads.is_fixed or not 0 < recorded <= self.cores:
            return False
        torch.set_num_threads(recorded)
        return True

    def with_fixed_threads(self) -> "World":
        """Return this world with a thread for each core, whatever other processes use.

        A number that is fixed already stays.
        """
        if self.threads.is_fixed:
            return self
        torch.set_num_threads(self.cores)
        return replace(self, threads=Threads(self.cores, "one for each core", is_fixed=True))

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
        values = [value]
        dist.broadcast_object_list(values)
        return values[0]

    def gather(self, values: Sequence[T]) -> list[T]:
        """Return the values of all processes, in rank order, on every process."""
        if self.size == 1:
            return list(values)
        gathered: list[Sequence[T]] = [()] * self.size
        dist.all_gather_object(gathered, list(values))
        return [value for values in gathered for value in values]

    def gather_on_main(self, values: Sequence[T]) -> list[T]:
        """Return the values of all processes, in rank order, on the main process.

        Elsewhere the list is empty.
        """
        if self.size == 1:
            return list(values)
        gathered: list[Sequence[T]] | None = [()] * self.size if self.is_main else None
        dist.gather_object(list(values), gathered)
        return [value for values in gathered or () for value in values]

    @functools.cached_property
    def failures(self) -> Mapping[int, str]:
        """Rank → why it does not respond, determined once: survivors exit, too.

        Asked for after a collective has failed.
        """
        return find_failures(self.peers)

    def describe_lost(self) -> str:
        """Return the processes that do not respond, for the end of an error message."""
        descriptions = []
        for rank, failure in self.failures.items():
            peer = self.peers[rank]
            descriptions.append(f"rank {rank} (process {peer.pid} on {peer.host}) {failure}")
        return ", ".join(descriptions) or "another process of the run does not answer"

    def average_(self, values: Tensor) -> None:
        """Replace values by their mean over all processes, in place.

        Does not wait for the device.
        """
        dist.all_reduce(values)
        values.div_(self.size)

    def broadcast_(self, network: nn.Module) -> None:
        """Replace the weights and statistics of all processes by rank 0's, in place."""
        for tensor in network.state_dict().values():
            dist.broadcast(tensor, 0)

    def barrier(self) -> None:
        """Wait until all processes have reached this point."""
        if self.size > 1:
            dist.barrier()

    def replicate(self, network: nn.Module) -> nn.Module:
        """Return the network; with several processes in DDP, which averages its gradients.

        It then has rank 0's weights.
        """
        if self.size == 1:
            return network
        # Raised for gradients of 1 x 1 kernels, whose memory layout is right whatever their
        # strides say.
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
        """Return the context of a backward pass.

        Only a step's last one averages gradients over processes.
        """
        if is_last or not isinstance(network, DistributedDataParallel):
            return nullcontext()
        context: AbstractContextManager[None] = network.no_sync()
        return context


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether a collective failed because another process is gone."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)
