"""The processes of a run, started by this one."""

import logging
import os
import signal
import sys
from collections.abc import Sequence

from torch.distributed import DistError
from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.elastic.rendezvous import RendezvousError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from train_pytorch_model.distributed.waiting import check_loopback, wait_for_answer
from train_pytorch_model.machine.launch import LAUNCHER, PROGRAM, Agent, LaunchError

# Its report of a failed worker would duplicate ours. The second logger has its own level.
ITS_LOGGERS = ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api")
JOIN_TIMEOUT_S = 600.0  # as of the ranks of a run
REPORTED = (2, 3, 4)  # exit statuses of errors that the rank has printed itself


def start_workers(agent: Agent, arguments: Sequence[str]) -> int:
    """Start this node's workers, without restarts; return the exit status. Raises `LaunchError`."""
    for name in ITS_LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = _config_of(agent)
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        _check_meeting_point(agent)
        elastic_launch(config, sys.executable)("-m", PROGRAM, *arguments)
    except ChildFailedError as error:
        return _report(error)
    except SignalException as error:
        return 128 + int(error.sigval)
    except (RendezvousError, DistError) as error:
        where = f"at {config.rdzv_endpoint}"
        if agent.num_nodes == 1:
            where = "on this machine, as if it had no loopback interface"
        reason = " ".join(str(error.__cause__ or error).split())[:300]
        raise LaunchError(f"The processes of the run cannot meet {where}: {reason}") from error
    finally:
        del os.environ[LAUNCHER]  # it must not reach processes that are started later
    return 0


def _config_of(agent: Agent) -> LaunchConfig:
    """Return torchrun's configuration for this node."""
    is_one_node = agent.num_nodes == 1
    endpoint = "localhost:0" if is_one_node else f"{agent.master_addr}:{agent.master_port}"
    return LaunchConfig(
        min_nodes=agent.num_nodes,
        max_nodes=agent.num_nodes,
        nproc_per_node=agent.num_processes,
        run_id=PROGRAM,
        rdzv_backend="c10d" if is_one_node else "static",
        rdzv_endpoint=endpoint,
        rdzv_configs={} if is_one_node else {"rank": agent.node_rank},
        max_restarts=0,  # restarted processes would read the addresses of those before
        monitor_interval=0.1,
        signals_to_handle=",".join(_signals_that_end()),
    )


def _signals_that_end() -> list[str]:
    """Return the signals that end the workers: not one that is ignored, as SIGHUP under nohup."""
    names = []
    for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"):
        number = getattr(signal, name, None)  # Windows has fewer
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:
            names.append(name)
    return names


def _check_meeting_point(agent: Agent) -> None:
    """Raise `DistError` if this node does not reach the address where the launchers will meet."""
    try:
        if agent.num_nodes == 1:
            check_loopback()
        elif agent.node_rank > 0:
            wait_for_answer(agent.master_addr, agent.master_port, JOIN_TIMEOUT_S)
    except OSError as error:
        raise DistError(str(error)) from error


def _report(error: ChildFailedError) -> int:
    """Print how the first worker failed, unless it has done so itself; return the exit status."""
    terminated = (-signal.SIGTERM, 128 + signal.SIGTERM)
    failures = error.failures
    # Rather than one that the launcher has terminated because of it.
    rank = min(
        failures,
        key=lambda rank: (failures[rank].exitcode in terminated, failures[rank].timestamp),
    )
    status = failures[rank].exitcode
    if status < 0:
        number = signal.Signals(-status)
        hint = ", as the system does when memory runs out" if number == signal.SIGKILL else ""
        pid = failures[rank].pid
        print(f"Rank {rank} (process {pid}) was ended by {number.name}{hint}.", file=sys.stderr)
        return 128 + number
    if status not in REPORTED:
        print(f"Rank {rank} ended with exit code {status}.", file=sys.stderr)
    return status
