"""Where the processes of a run meet and part, and what happens when one does not come."""

import importlib
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from train_pytorch_model.distributed.peers import Peer
from train_pytorch_model.distributed.waiting import check_loopback, wait_aloud, wait_for_answer
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.errors import LostRankError
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.machine import cores
from train_pytorch_model.machine.liveness import start_of
from train_pytorch_model.machine.threads import Threads, choose_threads, fixed_threads

TIMEOUT = timedelta(minutes=10)  # of one collective; a rank that is silent for longer is lost
# Before survivors exit: launchers report the first exit, which should be the cause.
EXIT_DELAY_S = 2.0


@contextmanager
def join_world(began: cores.CoreTimes | None = None) -> Iterator[World]:
    """Join the world that RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE describe, for a `with`.

    Several processes meet at MASTER_ADDR:MASTER_PORT and use NCCL on GPUs, gloo on CPUs. Without
    these variables the world is this process alone, and if it computes on a CPU, its threads make
    room for what other processes have computed since it `began`. Raises `LostRankError` if another
    process is lost meanwhile.
    """
    world = _this_process(began)
    if world.size == 1:
        yield world
        return
    try:
        world = _join(world)
        yield world
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise _lost(world, error) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _this_process(began: cores.CoreTimes | None) -> World:
    """Return the world as the variables describe it; set this process's GPU and threads."""
    rank = int(os.environ.get("RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # Slurm can show each process its own GPU only, which is then the first for all.
    device = best_device(local_rank % max(1, torch.cuda.device_count()))
    world = World(rank, size, local_rank, local_size, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    threads = _threads_of(world, began)
    torch.set_num_threads(threads.count)
    return replace(world, threads=threads)


def _threads_of(world: World, began: cores.CoreTimes | None) -> Threads:
    if world.size > 1 or world.device.type != "cpu":
        return Threads(world.cores, "this process's share of the cores", is_fixed=True)
    now = cores.CoreTimes.now()
    return fixed_threads(os.environ) or choose_threads(world.cores, began, now)


def _lost(world: World, error: RuntimeError) -> LostRankError | SystemExit:
    """Return the exception for a lost process.

    The lowest surviving rank of each host reports it.
    """
    if not world.peers:
        return _not_met(world, error)
    lost = world.describe_lost()
    time.sleep(EXIT_DELAY_S)
    host = world.peers[world.rank].host
    for rank, peer in enumerate(world.peers[: world.rank]):
        if peer.host == host and rank not in world.failures:
            return SystemExit(LostRankError.exit_status)
    return LostRankError(
        f"The processes of the run have lost each other: {lost}. The same command resumes from the"
        " last checkpoint."
    )


def _not_met(world: World, error: Exception) -> LostRankError | SystemExit:
    """Return the exception for a failed rendezvous, which one process of each host reports."""
    if world.local_rank > 0:
        return SystemExit(LostRankError.exit_status)
    address = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
    reason = " ".join(str(error).split()).removesuffix(".")[:300]
    return LostRankError(
        f"The {world.size} processes of the run could not meet at MASTER_ADDR:MASTER_PORT,"
        f" {address}: {reason}. Give all of them the same address; if another program uses the"
        " port, another port."
    )


def _join(world: World) -> World:
    """Form the process group once all are there; return the world with its peers.

    Raises `LostRankError`.
    """
    # On import, torch.distributed.nn captures the current process group as a default argument, and
    # DDP would import it later. A group that outlives the interpreter aborts the process when its
    # threads free tensors.
    importlib.import_module("torch.distributed.nn")
    store = _meet(world)
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


def _meet(world: World) -> Store:
    """Return the store that all processes share, once all are there. Raises `LostRankError`."""
    host = os.environ["MASTER_ADDR"]
    port = int(os.environ["MASTER_PORT"])
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
        " MASTER_PORT and WORLD_SIZE.",
    )
    return store
