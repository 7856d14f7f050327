"""The processes of a distributed run: rank and device, collectives, and how they meet and part."""

import functools
import importlib
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
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

from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.machine import system as processors
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.system import PROCESSES, is_stopped, start_of
from train_pytorch_model.words.errors import LostRankError

TIMEOUT = timedelta(minutes=10)  # of one collective; a rank that is silent for longer is lost
EXIT_DELAY_S = (
    2.0  # before survivors exit: launchers report the first exit, which should be the cause
)
EXIT_TIMEOUT_S = (
    15.0  # for a failed process to exit: seconds with PyTorch loaded, more on a busy machine
)
POLL_S = 0.1
SILENT_S = 15.0  # after which a process that waits says so
RETRY_S = 0.5
CONNECTION_TIMEOUT_S = 5.0

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
    threads: processors.Threads = processors.ONE_THREAD  # with how many PyTorch begins to compute

    @property
    def is_main(self) -> bool:
        """Whether this process logs and writes files for all."""
        return self.rank == 0

    @property
    def cores(self) -> int:
        """The number of CPU cores that are this process's share of its machine."""
        return max(1, processors.usable_cores() // self.local_size)

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


@contextmanager
def join_world(began: processors.CoreTimes | None = None) -> Iterator[World]:
    """Join the world that RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE describe, for a `with`.

    Several processes meet at MASTER_ADDR:MASTER_PORT and use NCCL on GPUs, gloo on CPUs. Without
    these variables the world is this process alone, and if it computes on a CPU, its threads make
    room for what other processes have computed since it `began`. Raises `LostRankError` if another
    process is lost meanwhile.
    """
    defaults = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1}
    rank, size, local_rank, local_size = (
        int(os.environ.get(name, n)) for name, n in defaults.items()
    )
    # Slurm can show each process its own GPU only, which is then the first for all.
    device = best_device(local_rank % max(1, torch.cuda.device_count()))
    world = World(rank, size, local_rank, local_size, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size > 1 or device.type != "cpu":
        threads = processors.Threads(
            world.cores, "this process's share of the cores", is_fixed=True
        )
    else:
        now = processors.CoreTimes.now()
        threads = processors.fixed_threads(os.environ) or processors.choose_threads(
            world.cores, began, now
        )
    world = replace(world, threads=threads)
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
        # The lowest surviving rank of each host reports the loss.
        here, before = world.peers[rank].host, enumerate(world.peers[:rank])
        if any(peer.host == here and each not in world.failures for each, peer in before):
            raise SystemExit(LostRankError.exit_status) from error
        raise LostRankError(
            f"The processes of the run have lost each other: {missing}. The same command resumes"
            " from the"
            " last checkpoint."
        ) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _not_met(world: World, error: Exception) -> LostRankError | SystemExit:
    """Return the exception for a failed rendezvous, which one process of each host reports."""
    if world.local_rank > 0:
        return SystemExit(LostRankError.exit_status)
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    reason = " ".join(str(error).split()).removesuffix(".")[:300]
    return LostRankError(
        f"The {world.size} processes of the run could not meet at MASTER_ADDR:MASTER_PORT,"
        f" {address}:"
        f" {reason}. Give all of them the same address; if another program uses the port, another"
        " port."
    )


def _join(world: World) -> World:
    """Form the process group once all are there; return the world with its peers.

    Raises `LostRankError`.
    """
    # On import, torch.distributed.nn captures the current process group as a default argument, and
    # DDP would import it later. A group that outlives the interpreter aborts the process when its
    # threads free tensors.
    importlib.import_module("torch.distributed.nn")
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
        f"Waiting at {host}:{port} for {others} of the run: all need the same MASTER_ADDR,"
        " MASTER_PORT and"
        " WORLD_SIZE.",
    )
    # A launcher that restarts its processes may give them the same store, which holds the old
    # addresses.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    has_gpu = world.device.type == "cuda"
    dist.init_process_group(
        backend="nccl" if has_gpu else "gloo",
        store=PrefixStore(f"attempt-{attempt}", store),
        rank=world.rank,
        world_size=world.size,
        timeout=TIMEOUT,
        device_id=world.device if has_gpu else None,
    )
    peer = Peer(socket.gethostname(), os.getpid(), start_of(os.getpid()))
    return replace(world, peers=tuple(world.gather([peer])))


def check_loopback() -> None:
    """Raise `OSError` if this machine cannot reach itself; before torch tries, whose C++ logs that."""
    with socket.create_server(("localhost", 0)) as server:
        socket.create_connection(
            ("localhost", server.getsockname()[1]), CONNECTION_TIMEOUT_S
        ).close()


def wait_for_answer(host: str, port: int, timeout_s: float) -> None:
    """Return when a process answers at the address.

    Raises `OSError` if none does in that many seconds.
    """
    started_at, is_said = time.monotonic(), False
    while True:
        try:
            return socket.create_connection((host, port), CONNECTION_TIMEOUT_S).close()
        except OSError as error:
            waited_s = time.monotonic() - started_at
            if waited_s > timeout_s:
                raise
            if waited_s > SILENT_S and not is_said:
                is_said = True  # not with the logger, as only rank 0 shows what it logs
                print(f"Waiting for rank 0 at {host}:{port}: {error}.", file=sys.stderr, flush=True)
        time.sleep(RETRY_S)


def in_thread(call: Callable[[], T]) -> Future[T]:
    """Call in a thread that does not keep the process from ending, such as by Ctrl-C."""
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return future


def wait_aloud(call: Callable[[], T], waiting: str) -> T:
    """Return what `call` returns; log `waiting` if that takes long, and let Ctrl-C end it
    meanwhile.
    """
    future = in_thread(call)
    if wait([future], SILENT_S).not_done:
        logger.warning(waiting)
    return future.result()
