"""The processes of a distributed run: rank and device, collectives, and how they meet and part."""

import functools
import importlib
import os
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from train_pytorch_model.distributed.lost_ranks import Peer, find_failures
from train_pytorch_model.distributed.meeting import check_loopback, wait_aloud, wait_for_answer
from train_pytorch_model.image_classifier.device import best_device
from train_pytorch_model.machine.cores import (
    ONE_THREAD,
    CoreTimes,
    Threads,
    choose_threads,
    fixed_threads,
    usable_cores,
)
from train_pytorch_model.words.errors import LostRankError

TIMEOUT = timedelta(minutes=10)  # of one collective; a rank that is silent for longer is lost
EXIT_DELAY_S = 2.0  # before survivors exit: launchers report the first exit, which should be the cause

T = TypeVar("T")


@dataclass(frozen=True)
class World:
    """All processes of a run, seen from one of them. With a single process, collectives do nothing."""

    rank: int
    size: int
    local_rank: int
    local_size: int
    device: torch.device
    peers: tuple[Peer, ...] = ()
    """All processes, by rank; empty in a run of a single process."""
    threads: Threads = ONE_THREAD
    """With how many threads PyTorch begins to compute on this process's cores."""

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes files for all."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """The number of CPU cores that are this process's share of its machine."""
        return max(1, usable_cores() // self.local_size)

    def use_threads(self, recorded: int) -> bool:
        """Compute with as many threads as an earlier start of the run, for the same bits; False if not.

        Not with more than there are cores, nor with 0, which is not recorded, nor with others than are fixed.
        """
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
        """Return the values of all processes, in rank order, on the main process; elsewhere nothing."""
        if self.size == 1:
            return list(values)
        gathered: list[Sequence[T]] | None = [()] * self.size if self.is_main else None
        dist.gather_object(list(values), gathered)
        return [value for values in gathered or () for value in values]

    @functools.cached_property
    def failures(self) -> Mapping[int, str]:
        """Return rank → why that process does not respond, as far as this one can tell.

        Determined once, as soon as a collective has failed: the other survivors exit one after the other.
        """
        return find_failures(self.peers)

    def describe_lost(self) -> str:
        """Return the processes that do not respond, for the end of an error message."""
        texts = [
            f"rank {rank} (process {self.peers[rank].pid} on {self.peers[rank].host}) {failure}"
            for rank, failure in self.failures.items()
        ]
        return ", ".join(texts) or "another process of the run does not answer"

    def speaks_for_survivors(self) -> bool:
        """Return whether this is the lowest surviving rank of its host, which reports the loss."""
        here = self.peers[self.rank].host
        before = enumerate(self.peers[: self.rank])
        return not any(peer.host == here and rank not in self.failures for rank, peer in before)

    def average_(self, values: Tensor) -> None:
        """Replace values by their mean over all processes, in place, without waiting for the device."""
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
        """Return the network, of several processes in DDP: averages gradients, has rank 0's weights."""
        if self.size == 1:
            return network
        # Raised for gradients of 1 x 1 kernels, whose memory layout is right whatever their strides say.
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
        """Return the context of a backward pass: only a step's last one averages gradients over processes."""
        if is_last or not isinstance(network, DistributedDataParallel):
            return nullcontext()
        context: AbstractContextManager[None] = network.no_sync()
        return context


def is_lost_connection(error: RuntimeError) -> bool:
    """Return whether a collective failed because another process is gone, rather than for another reason."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


@contextmanager
def join_world(began: CoreTimes | None = None) -> Iterator[World]:
    """Join the world that RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE describe, for a `with`.

    Several processes meet at MASTER_ADDR:MASTER_PORT and use NCCL on GPUs, gloo on CPUs. Without these
    variables the world is this process alone, and if it computes on a CPU, its threads make room for what
    other processes have computed since it `began`. Raises `LostRankError` if another process is lost
    meanwhile.
    """
    rank = int(os.environ.get("RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # Slurm can show each process its own GPU only, which is then the first for all.
    device = best_device(local_rank % max(1, torch.cuda.device_count()))
    world = World(rank, size, local_rank, local_size, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    world = replace(world, threads=_threads_of(world, began))
    torch.set_num_threads(world.threads.count)
    if size == 1:
        yield world
        return
    try:
        world = _join(world)
        yield world
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        if not world.peers:
            raise _not_met(world, error) from error
        missing = world.describe_lost()
        time.sleep(EXIT_DELAY_S)
        if not world.speaks_for_survivors():
            raise SystemExit(LostRankError.exit_status) from error
        raise LostRankError(
            f"The processes of the run have lost each other: {missing}. The same command resumes from the"
            " last checkpoint."
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _threads_of(world: World, began: CoreTimes | None) -> Threads:
    if world.size > 1 or world.device.type != "cpu":
        return Threads(world.cores, "this process's share of the cores", is_fixed=True)
    return fixed_threads(os.environ) or choose_threads(world.cores, began, CoreTimes.now())


def _not_met(world: World, error: Exception) -> LostRankError | SystemExit:
    """Return the exception for a failed rendezvous, which one process of each host reports."""
    if world.local_rank > 0:
        return SystemExit(LostRankError.exit_status)
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    reason = " ".join(str(error).split()).removesuffix(".")[:300]
    return LostRankError(
        f"The {world.size} processes of the run could not meet at MASTER_ADDR:MASTER_PORT, {address}:"
        f" {reason}. Give all of them the same address; if another program uses the port, another port."
    )


def _meet(world: World) -> Store:
    """Return the store of the run, when all of its processes are there. Raises `LostRankError`."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    try:
        if world.local_size == world.size:
            check_loopback()
        if world.rank > 0:
            wait_for_answer(host, port, TIMEOUT.total_seconds())
    except OSError as error:
        raise _not_met(world, error) from error
    others = f"the other {world.size - 1} processes" if world.size > 2 else "the other process"
    store: Store = wait_aloud(
        lambda: next(rendezvous("env://", world.rank, world.size, timeout=TIMEOUT))[0],
        f"Waiting at {host}:{port} for {others} of the run: all need the same MASTER_ADDR, MASTER_PORT and"
        " WORLD_SIZE.",
    )
    return store


def _join(world: World) -> World:
    """Form the process group; return the world with its peers."""
    # On import, torch.distributed.nn captures the current process group as a default argument, and DDP would
    # import it later. A group that outlives the interpreter aborts the process when its threads free tensors.
    importlib.import_module("torch.distributed.nn")
    # A launcher that restarts its processes may give them the same store, which holds the old addresses.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = _meet(world)
    has_gpu = world.device.type == "cuda"
    dist.init_process_group(
        backend="nccl" if has_gpu else "gloo",
        store=PrefixStore(f"attempt-{attempt}", store),
        rank=world.rank,
        world_size=world.size,
        timeout=TIMEOUT,
        device_id=world.device if has_gpu else None,
    )
    return replace(world, peers=tuple(world.gather([Peer.of_this_process()])))
