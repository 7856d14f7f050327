"""How this process was launched, and whether it starts worker processes itself.

`decide` is a pure function of the environment and the number of GPUs, tested by a table of cases.
"""

import logging
import os
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train_pytorch_model.words.errors import UserError
from train_pytorch_model.words.wording import counted

PROGRAM = "train_pytorch_model"
DEFAULT_PORT = 6105  # Azure ML's
LOCALHOST = "127.0.0.1"
LAUNCHER = "TRAIN_PYTORCH_MODEL_LAUNCHER"  # tells workers the process id of their launcher


class LaunchError(UserError):
    """The processes were started in a way that cannot work."""

    exit_status = 2
    code = ""


@dataclass(frozen=True)
class Worker:
    """This process trains: alone, or as one rank of a group that has been launched."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    master_addr: str = LOCALHOST
    master_port: int = DEFAULT_PORT
    note: str = ""
    """How the process was launched, for the log."""
    warning: str = ""

    def environment(self) -> dict[str, str]:
        """The variables that torch.distributed reads."""
        return {
            "RANK": str(self.rank),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(self.local_rank),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(self.master_port),
        }


@dataclass(frozen=True)
class Agent:
    """This process starts the workers of its node, one per GPU, and waits for them."""

    num_processes: int
    num_nodes: int = 1
    node_rank: int = 0
    master_addr: str = LOCALHOST
    master_port: int = DEFAULT_PORT
    note: str = ""

    def torchrun_line(self, arguments: Sequence[str]) -> str:
        """The torchrun command that starts the same processes."""
        where = (
            ["--standalone"]
            if self.num_nodes == 1
            else [
                f"--nnodes={self.num_nodes}",
                f"--node-rank={self.node_rank}",
                f"--master-addr={self.master_addr}",
                f"--master-port={self.master_port}",
            ]
        )
        processes = f"--nproc-per-node={self.num_processes}"
        return shlex.join(["torchrun", *where, processes, "-m", PROGRAM, *arguments])


def decide(environment: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """The role of this process. Raises `LaunchError` if the environment is inconsistent or incomplete."""
    if "TORCHELASTIC_RUN_ID" in environment:
        return _checked(_worker_of_launcher(environment, "torchrun"), num_gpus)
    if "OMPI_COMM_WORLD_SIZE" in environment:
        return _checked(_worker_of_mpi(environment, num_gpus), num_gpus)
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return _of_azure_or_other(environment, num_gpus)
    _refuse_half_launched(environment)
    if num_gpus > 1:
        return Agent(num_gpus, note=f"{num_gpus} GPUs, and no launcher has started a process for each.")
    return Worker()


def rank_of(environment: Mapping[str, str]) -> int:
    """This process's rank according to its environment, unchecked; 0 when alone."""
    rank = environment.get("RANK", environment.get("OMPI_COMM_WORLD_RANK", "0"))
    return int(rank) if rank.isdecimal() else 0


def start_workers(agent: Agent, arguments: Sequence[str]) -> int:
    """Start this node's workers with torchrun's launcher and wait for them; returns the exit status.

    Without restarts: a restarted process group would read the addresses of the previous one.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Its report of a failed worker would duplicate ours. The second logger has its own level.
    for name in ("torch.distributed.elastic", "torch.distributed.elastic.agent.server.api"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    is_alone = agent.num_nodes == 1
    config = LaunchConfig(
        min_nodes=agent.num_nodes,
        max_nodes=agent.num_nodes,
        nproc_per_node=agent.num_processes,
        run_id=PROGRAM,
        rdzv_backend="c10d" if is_alone else "static",
        rdzv_endpoint="localhost:0" if is_alone else f"{agent.master_addr}:{agent.master_port}",
        rdzv_configs={} if is_alone else {"rank": agent.node_rank},
        max_restarts=0,
        monitor_interval=0.1,
    )
    os.environ[LAUNCHER] = str(os.getpid())
    try:
        elastic_launch(config, sys.executable)("-m", PROGRAM, *arguments)
    except ChildFailedError as error:
        # The first worker to fail, rather than one that the launcher terminated because of it.
        ended = -signal.SIGTERM, 128 + signal.SIGTERM
        rank, failure = min(
            error.failures.items(), key=lambda item: (item[1].exitcode in ended, item[1].timestamp)
        )
        status = failure.exitcode
        if status < 0:
            number = signal.Signals(-status)
            print(
                f"Rank {rank} (process {failure.pid}) was ended by {number.name}{_hint(number)}.",
                file=sys.stderr,
            )
            return 128 + number
        if status not in (2, 3, 4):  # these the rank has reported itself
            print(f"Rank {rank} ended with exit code {status}.", file=sys.stderr)
        return status
    except SignalException as error:
        return 128 + int(error.sigval)
    finally:
        del os.environ[LAUNCHER]  # it must not reach processes that are started later
    return 0


def _hint(number: signal.Signals) -> str:
    return ", as the system does when memory runs out" if number == signal.SIGKILL else ""


def _worker_of_launcher(environment: Mapping[str, str], launcher: str) -> Worker:
    rank, size = _integer(environment, "RANK"), _integer(environment, "WORLD_SIZE")
    master_addr = environment.get("MASTER_ADDR", LOCALHOST)
    is_one_node = master_addr in (LOCALHOST, "localhost")
    local_size = _integer(environment, "LOCAL_WORLD_SIZE", size if is_one_node else 1)
    return Worker(
        rank=rank,
        size=size,
        local_rank=_integer(environment, "LOCAL_RANK", rank if is_one_node else 0),
        local_size=local_size,
        master_addr=master_addr,
        master_port=_integer(environment, "MASTER_PORT", DEFAULT_PORT),
        note=f"Process {rank} of {size}, started by {launcher}.",
    )


def _worker_of_mpi(environment: Mapping[str, str], num_gpus: int) -> Worker:
    size = _integer(environment, "OMPI_COMM_WORLD_SIZE")
    local_size = _integer(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", 1)
    address, _, port = environment.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = (
        address or environment.get("AZ_BATCHAI_MPI_MASTER_NODE", "") or environment.get("MASTER_ADDR", "")
    )
    if not address and local_size < size:
        raise LaunchError(
            f"MPI has started {size} processes on several nodes, and none of AZ_BATCH_MASTER_NODE,"
            " AZ_BATCHAI_MPI_MASTER_NODE and MASTER_ADDR says where they meet. Set MASTER_ADDR to the"
            " address of the first node."
        )
    idle = num_gpus - local_size
    port = environment.get("MASTER_PORT", "") or port  # the user's choice overrides Azure Batch's
    return Worker(
        rank=_integer(environment, "OMPI_COMM_WORLD_RANK"),
        size=size,
        local_rank=_integer(environment, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        local_size=local_size,
        master_addr=address or LOCALHOST,
        master_port=int(port) if port.isdecimal() else DEFAULT_PORT,
        note=f"MPI has started {_processes(size)}, {local_size} on this node.",
        warning=f"{idle} of {num_gpus} GPUs are idle: MPI started {_processes(local_size)} on this node."
        if idle > 0
        else "",
    )


def _of_azure_or_other(environment: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    worker = _worker_of_launcher(environment, "a launcher that sets RANK and WORLD_SIZE")
    if "AZUREML_NODE_COUNT" not in environment:
        return _checked(
            replace(
                worker,
                warning="RANK and WORLD_SIZE are set, but not by torchrun or Azure ML: this process runs as"
                " that rank and starts no other processes.",
            ),
            num_gpus,
        )
    num_nodes = _integer(environment, "AZUREML_NODE_COUNT")
    if num_nodes < 1 or worker.size % num_nodes:
        raise LaunchError(
            f"WORLD_SIZE {worker.size} is not a multiple of AZUREML_NODE_COUNT {num_nodes}: every node"
            " needs the same number of processes."
        )
    per_node = worker.size // num_nodes
    if per_node == 1 and num_gpus > 1:
        return Agent(
            num_processes=num_gpus,
            num_nodes=num_nodes,
            node_rank=_integer(environment, "NODE_RANK", worker.rank),
            master_addr=worker.master_addr,
            master_port=worker.master_port,
            note=f"Azure ML has started one process per node, on {_nodes(num_nodes)}; this one has"
            f" {num_gpus} GPUs and gets a process for each.",
        )
    return _checked(
        replace(
            worker,
            local_rank=_integer(environment, "LOCAL_RANK", worker.rank % per_node),
            local_size=per_node,
            note=f"Azure ML has started {_processes(per_node)} per node, on {_nodes(num_nodes)};"
            " no more are started.",
        ),
        num_gpus,
    )


def _processes(count: int) -> str:
    return counted(count, "process", "processes")


def _nodes(count: int) -> str:
    return counted(count, "node", "nodes")


def _refuse_half_launched(environment: Mapping[str, str]) -> None:
    older = [name for name in environment if name.startswith("AZ_BATCHAI_")]
    old_launch = {"AZ_BATCHAI_TASK_INDEX", "AZ_BATCHAI_PYTORCH_INIT_METHOD"} & set(older)
    if old_launch:
        raise LaunchError(
            f"{', '.join(sorted(old_launch))} is set, but not RANK and WORLD_SIZE: an older Azure launch"
            " that does not say how many processes there are. Use `distribution: {type: pytorch}`."
        )
    num_nodes = environment.get("AZUREML_NODE_COUNT", "1")
    if num_nodes != "1":
        raise LaunchError(
            f"AZUREML_NODE_COUNT is {num_nodes}, but RANK and WORLD_SIZE are not set: each node would"
            " train alone and write the same output. Add `distribution: {type: pytorch}` to the job."
        )
    if ("RANK" in environment) != ("WORLD_SIZE" in environment):
        raise LaunchError("Only one of RANK and WORLD_SIZE is set. Set both or neither.")


def _checked(worker: Worker, num_gpus: int) -> Worker:
    if not 0 <= worker.rank < worker.size:
        raise LaunchError(f"RANK {worker.rank} is not from 0 to WORLD_SIZE - 1 = {worker.size - 1}.")
    if 0 < num_gpus < max(worker.local_size, worker.local_rank + 1):
        raise LaunchError(
            f"The process count per node, {max(worker.local_size, worker.local_rank + 1)}, is larger than"
            f" the processing units: this node has {num_gpus} GPUs. Start at most one process per GPU."
        )
    return worker


def _integer(environment: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environment.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise LaunchError(f"{name} is {text!r}, expected a whole number.") from None
