"""Run a story in this process, in those that a launcher has started, or in one per GPU.

The first process of each host opens the inputs; all get those of rank 0.
"""

import hashlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TypeVar

import torch
from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from train_pytorch_model.distributed.world import (
    World,
    check_loopback,
    in_thread,
    join_world,
    wait_for_answer,
)
from train_pytorch_model.formats.run_folder import differing_options
from train_pytorch_model.inputs.opening import OpenedInputs, ScoringInputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.machine.launch import LAUNCHER, PROGRAM, Agent, LaunchError, Worker, decide
from train_pytorch_model.machine.system import CoreTimes, keep_freed_memory, short_switch_interval
from train_pytorch_model.words.errors import TrainingError, UserError, bulleted

T = TypeVar("T", OpenedInputs, ScoringInputs)
POLL_S = 0.2
# Its report of a failed worker would duplicate ours. The second logger has its own level.
ITS_LOGGERS = ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api")
JOIN_TIMEOUT_S = 600.0  # as of the ranks of a run
REPORTED = (2, 3, 4)  # exit statuses of errors that the rank has printed itself


def run_story(
    story: Callable[[T, World], None],
    open_inputs: Callable[[], T | None],
    opened: T | None,
    arguments: Sequence[str],
    options: Mapping[str, str],
    began: CoreTimes | None,
) -> None:
    """Run a story on its inputs, or start one worker per GPU with `arguments`, the verb first.

    The inputs are already `opened` in a process that no launcher has started; otherwise the first
    rank of each host opens them. All ranks must have the same `options`; this process `began` then.
    If workers fail, it exits with their status. Raises `LaunchError`, and whatever the story
    raises.
    """
    part = decide(os.environ, torch.cuda.device_count())
    if part.note:
        logger.info(part.note)
    if (
        LAUNCHER in os.environ
    ):  # which needs no file with this process's error, and fails if /tmp is full
        os.environ.pop("TORCHELASTIC_ERROR_FILE", None)
    if not isinstance(part, Worker):
        if opened is not None or open_inputs() is not None:
            logger.info(part.torchrun_line(arguments))
            if status := start_workers(part, arguments):
                sys.exit(status)
        return

    @record  # without it, torchrun shows no traceback of an exception
    def work() -> None:
        keep_freed_memory()
        if part.warning:
            logger.warning(part.warning)
        if part.size > 1:
            os.environ.update(part.variables())
        with short_switch_interval(), join_world(began) as world:
            inputs = open_together(open_inputs, options, world) if world.size > 1 else opened
            if inputs is not None:
                story(inputs, world)

    work()


def open_together(
    open_inputs: Callable[[], T | None], options: Mapping[str, str], world: World
) -> T | None:
    """Rank 0's inputs, for all; each host's first opens them.

    Raises any rank's error, or `TrainingError`.
    """
    # In a thread, as it may take longer than the timeout of a collective: no rank waits in a single
    # one for another.
    opened: Future[T | None] = in_thread(open_inputs if world.local_rank == 0 else lambda: None)
    while not all(world.gather([opened.done()])):
        wait([opened], POLL_S)
    raised = opened.exception()
    if raised and not isinstance(raised, UserError):
        raise raised
    for error in world.gather([raised]):
        if error:
            raise error
    inputs = opened.result()
    agreed = world.broadcast(inputs)
    if agreed is None:
        return None
    if isinstance(agreed, OpenedInputs):
        model = {} if inputs is None else {"untrained_model": inputs.model.sha256}
        used = world.gather([{**options, **model}])
        differences = [
            f"rank {rank}: {option} "
            + (f"is {value}, not {mains}" if value else "has other content")
            for rank, own in enumerate(used)
            for option, mains, value in differing_options(used[0], own)
        ]
        if differences:
            raise TrainingError(
                "Not all processes were started with the command of rank"
                f" 0:{bulleted(differences)}\n"
                "Start all of them with the same one."
            )
    if (
        world.local_size < world.size
    ):  # images that are missing there are rejected when they are read
        hashes = world.gather([None if inputs is None else _sha256(inputs)])
        others = [str(rank) for rank, found in enumerate(hashes) if found not in (None, hashes[0])]
        if others:
            ranks = ", ".join(others)
            logger.warning(
                f"Other images exist or are readable for rank {ranks}; those of rank 0 are used."
            )
    return agreed


def _sha256(inputs: OpenedInputs | ScoringInputs) -> str:
    """Return a hash of the images and of their rows: caches and results refer to rows."""
    given = (
        [inputs.images]
        if isinstance(inputs, ScoringInputs)
        else [inputs.training, inputs.validation]
    )
    content = b"".join(each.fingerprint().encode() + each.rows.tobytes() for each in given)
    return hashlib.sha256(content).hexdigest()


def start_workers(agent: Agent, arguments: Sequence[str]) -> int:
    """Start this node's workers, without restarts; return the exit status. Raises `LaunchError`."""
    for name in ITS_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    is_one_node = agent.num_nodes == 1
    # Those that end the workers: not one that is ignored, as SIGHUP under nohup. Windows has fewer.
    names = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT")
    present = {name: getattr(signal, name) for name in names if hasattr(signal, name)}
    signals = [
        name for name, number in present.items() if signal.getsignal(number) != signal.SIG_IGN
    ]
    config = LaunchConfig(
        min_nodes=agent.num_nodes,
        max_nodes=agent.num_nodes,
        nproc_per_node=agent.num_processes,
        run_id=PROGRAM,
        rdzv_backend="c10d" if is_one_node else "static",
        rdzv_endpoint="localhost:0" if is_one_node else f"{agent.master_addr}:{agent.master_port}",
        rdzv_configs={} if is_one_node else {"rank": agent.node_rank},
        max_restarts=0,  # restarted processes would read the addresses of those before
        monitor_interval=0.1,
        signals_to_handle=",".join(signals),
    )
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        try:  # whether this node reaches the address at which the launchers will meet
            if is_one_node:
                check_loopback()
            elif agent.node_rank > 0:
                wait_for_answer(agent.master_addr, agent.master_port, JOIN_TIMEOUT_S)
        except OSError as error:
            raise DistError(str(error)) from error
        elastic_launch(config, sys.executable)("-m", PROGRAM, *arguments)
    except ChildFailedError as error:
        return _report(error)
    except SignalException as error:
        return 128 + int(error.sigval)
    except (RendezvousError, DistError) as error:
        here = "on this machine, as if it had no loopback interface"
        where = here if is_one_node else f"at {config.rdzv_endpoint}"
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise LaunchError(f"The processes of the run cannot meet {where}: {reason}") from error
    finally:
        del os.environ[LAUNCHER]  # it must not reach processes that are started later
    return 0


def _report(error: ChildFailedError) -> int:
    """Print how the first worker failed, unless it has done so itself; return the exit status."""
    # Rather than one that the launcher has terminated because of it.
    ended, failures = (-signal.SIGTERM, 128 + signal.SIGTERM), error.failures
    rank = min(
        failures, key=lambda each: (failures[each].exitcode in ended, failures[each].timestamp)
    )
    status, pid = failures[rank].exitcode, failures[rank].pid
    if status < 0:
        number = signal.Signals(-status)
        hint = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
        print(f"Rank {rank} (process {pid}) was ended by {number.name}{hint}.", file=sys.stderr)
        return 128 + number
    if status not in REPORTED:
        print(f"Rank {rank} ended with exit code {status}.", file=sys.stderr)
    return status
