"""Where the processes of a run meet and part, and what happens when one does not come."""

import importlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from train_pytorch_model.distributed.peers import Peer, on_one_gpu, place_of
from train_pytorch_model.distributed.waiting import check_loopback, wait_aloud, wait_for_answer
from train_pytorch_model.distributed.world import World, is_lost_connection
from train_pytorch_model.errors import LostRankError
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.machine import cores
from train_pytorch_model.machine.launch import LaunchError
from train_pytorch_model.machine.threads import Threads, choose_threads, fixed_threads

TIMEOUT = timedelta(minutes=10)  # of one collective; a rank that is silent for longer is lost
# Before survivors exit: launchers report the first exit, which should be the cause.
EXIT_DELAY_S = 2.0


@contextmanager
def join_world(began: cores.CoreTimes | None = None) -> Iterator[World]:
    """Join the world that RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE describe, for a `with`.

    Several processes meet at MASTER_ADDR:MASTER_PORT and use NCCL on GPUs, gloo on CPUs. They then
    see which of them share a machine, which no launcher needs to know. Without these variables the
    world is this process alone, and if it computes on a CPU, its threads make room for what other
    processes have computed since it `began`. Raises `LostRankError` if another process is lost
    meanwhile, `LaunchError` if two have the same GPU.
    """
    world = _this_process()
    if world.size == 1:
        yield _with_threads(world, began)
        return
    try:
        world = _with_threads(_join(world), began)
        yield world
    except RuntimeError as error:
        if not is_lost_connection(error):
            raise
        raise _lost(world, error) from error
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _this_process() -> World:
    """Return the world as the variables describe it; set this process's GPU."""
    rank = int(os.environ.get("RANK", "0"))
    size = int(os.environ.get("WORLD_SIZE", "1"))
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    # Slurm can show each process its own GPU only, which is then the first for all.
    device = best_device(local_rank % max(1, torch.cuda.device_count()))
    world = World(rank, size, local_rank, local_size, device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return world


def _with_threads(world: World, began: cores.CoreTimes | None) -> World:
    """Set this process's threads; return the world with them."""
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
    machine = world.peers[world.rank].machine
    for rank, peer in enumerate(world.peers[: world.rank]):
        if peer.machine == machine and rank not in world.failures:
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

    Raises `LostRankError`, `LaunchError`.
    """
    # On import, torch.distributed.nn captures the current process group as a default argument, and
    # DDP would import it later. A group that outlives the interpreter aborts the process when its
    # threads free tensors.
    importlib.import_module("torch.distributed.nn")
    # A launcher that restarts its processes may give them the same store, which holds the old
    # addresses.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"attempt-{attempt}", _meet(world))
    peers = _exchange_peers(world, store)
    has_gpu = world.device.type == "cuda"
    dist.init_process_group(
        backend="nccl" if has_gpu else "gloo",
        store=store,
        rank=world.rank,
        world_size=world.size,
        timeout=TIMEOUT,
        device_id=world.device if has_gpu else None,
    )
    local_rank, local_size = place_of(world.rank, peers, world.local_size)
    return replace(world, local_rank=local_rank, local_size=local_size, peers=peers)


def _exchange_peers(world: World, store: Store) -> tuple[Peer, ...]:
    """Return all processes, before NCCL connects them. Raises `LaunchError` if two have one GPU."""
    device = world.device
    gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
    store.set(f"peer-{world.rank}", json.dumps(astuple(Peer.of_this_process(gpu))))
    texts = store.multi_get([f"peer-{rank}" for rank in range(world.size)])
    peers = tuple(Peer(*json.loads(text)) for text in texts)
    ranks = on_one_gpu(peers)
    if ranks:
        _part(world, store)
        host = peers[ranks[0]].host
        raise LaunchError(
            f"Ranks {', '.join(map(str, ranks))} have taken the same GPU of {host}, and each needs"
            " one of its own. Start them with one launcher, which sets LOCAL_RANK, or give each"
            " launcher other GPUs by CUDA_VISIBLE_DEVICES."
        )
    return peers


def _part(world: World, store: Store) -> None:
    """Leave the store, which may end with the main process, once all have read it."""
    store.set(f"parted-{world.rank}", "")
    if world.is_main:
        store.wait([f"parted-{rank}" for rank in range(world.size)], TIMEOUT)


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
