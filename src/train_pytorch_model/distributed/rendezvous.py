"""Where the processes of a run meet, and what happens when one does not come."""

import importlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from train_pytorch_model.distributed.world import Peer, T, World, is_lost_connection
from train_pytorch_model.errors import LostRankError
from train_pytorch_model.image_classifier.classifier import best_device
from train_pytorch_model.machine import cores
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.liveness import start_of
from train_pytorch_model.machine.threads import Threads, choose_threads, fixed_threads

TIMEOUT = timedelta(minutes=10)  # of one collective; a rank that is silent for longer is lost
EXIT_DELAY_S = (
    2.0  # before survivors exit: launchers report the first exit, which should be the cause
)
SILENT_S = 15.0  # after which a process that waits says so
RETRY_S = 0.5
CONNECTION_TIMEOUT_S = 5.0


@contextmanager
def join_world(began: cores.CoreTimes | None = None) -> Iterator[World]:
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
        threads = Threads(world.cores, "this process's share of the cores", is_fixed=True)
    else:
        now = cores.CoreTimes.now()
        threads = fixed_threads(os.environ) or choose_threads(world.cores, began, now)
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
    context = copy_context()  # which says how messages are worded

    def work() -> None:
        try:
            future.set_result(context.run(call))
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
