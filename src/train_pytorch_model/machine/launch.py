"""How this process was launched, and whether it starts worker processes itself.

`decide` is a pure function of the environment variables and the number of GPUs, tested by a table of cases.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train_pytorch_model.words.errors import UserError
from train_pytorch_model.words.wording import counted

PROGRAM = "train_pytorch_model"
DEFAULT_PORT = 6105  # Azure ML's
LOCALHOST = "127.0.0.1"
LAUNCHER = "TRAIN_PYTORCH_MODEL_LAUNCHER"  # variable: tells workers the process id of their launcher


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

    def variables(self) -> dict[str, str]:
        """Return the environment variables that torch.distributed reads."""
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
        """Return the torchrun command that starts the same processes."""
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


def decide(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of this process. Raises `LaunchError` if variables are missing or contradictory."""
    if "TORCHELASTIC_RUN_ID" in env:
        return _check(_worker_of_launcher(env, "torchrun"), num_gpus)
    if "OMPI_COMM_WORLD_SIZE" in env:
        return _check(_worker_of_mpi(env, num_gpus), num_gpus)
    if "RANK" in env and "WORLD_SIZE" in env:
        return _of_azure_or_other(env, num_gpus)
    _refuse_half_launched(env)
    if num_gpus > 1:
        return Agent(num_gpus, note=f"{num_gpus} GPUs, and no launcher has started a process for each.")
    return Worker()


def is_alone(env: Mapping[str, str]) -> bool:
    """Return whether no launcher has started other processes of the run. Raises `LaunchError`."""
    part = decide(env, num_gpus=0)
    return isinstance(part, Worker) and part.size == 1


def rank_of(env: Mapping[str, str]) -> int:
    """Return this process's rank according to its variables, unchecked; 0 when alone."""
    rank = env.get("RANK", env.get("OMPI_COMM_WORLD_RANK", "0"))
    return int(rank) if rank.isdecimal() else 0


def _worker_of_launcher(env: Mapping[str, str], launcher: str) -> Worker:
    rank, size = _integer(env, "RANK"), _integer(env, "WORLD_SIZE")
    master_addr = env.get("MASTER_ADDR", LOCALHOST)
    is_one_node = master_addr in (LOCALHOST, "localhost")
    local_size = _integer(env, "LOCAL_WORLD_SIZE", size if is_one_node else 1)
    return Worker(
        rank=rank,
        size=size,
        local_rank=_integer(env, "LOCAL_RANK", rank if is_one_node else 0),
        local_size=local_size,
        master_addr=master_addr,
        master_port=_integer(env, "MASTER_PORT", DEFAULT_PORT),
        note=f"Process {rank} of {size}, started by {launcher}.",
    )


def _worker_of_mpi(env: Mapping[str, str], num_gpus: int) -> Worker:
    size = _integer(env, "OMPI_COMM_WORLD_SIZE")
    local_size = _integer(env, "OMPI_COMM_WORLD_LOCAL_SIZE", 1)
    address, _, port = env.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = address or env.get("AZ_BATCHAI_MPI_MASTER_NODE", "") or env.get("MASTER_ADDR", "")
    if not address and local_size < size:
        raise LaunchError(
            f"MPI has started {size} processes on several nodes, and none of AZ_BATCH_MASTER_NODE,"
            " AZ_BATCHAI_MPI_MASTER_NODE and MASTER_ADDR says where they meet. Set MASTER_ADDR to the"
            " address of the first node."
        )
    idle = num_gpus - local_size
    port = env.get("MASTER_PORT", "") or port  # the user's choice overrides Azure Batch's
    return Worker(
        rank=_integer(env, "OMPI_COMM_WORLD_RANK"),
        size=size,
        local_rank=_integer(env, "OMPI_COMM_WORLD_LOCAL_RANK", 0),
        local_size=local_size,
        master_addr=address or LOCALHOST,
        master_port=int(port) if port.isdecimal() else DEFAULT_PORT,
        note=f"MPI has started {_processes(size)}, {local_size} on this node.",
        warning=f"{idle} of {num_gpus} GPUs are idle: MPI started {_processes(local_size)} on this node."
        if idle > 0
        else "",
    )


def _of_azure_or_other(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    worker = _worker_of_launcher(env, "a launcher that sets RANK and WORLD_SIZE")
    if "AZUREML_NODE_COUNT" not in env:
        return _check(
            replace(
                worker,
                warning="RANK and WORLD_SIZE are set, but not by torchrun or Azure ML: this process runs as"
                " that rank and starts no other processes.",
            ),
            num_gpus,
        )
    num_nodes = _integer(env, "AZUREML_NODE_COUNT")
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
            node_rank=_integer(env, "NODE_RANK", worker.rank),
            master_addr=worker.master_addr,
            master_port=worker.master_port,
            note=f"Azure ML has started one process per node, on {_nodes(num_nodes)}; this one has"
            f" {num_gpus} GPUs and gets a process for each.",
        )
    return _check(
        replace(
            worker,
            local_rank=_integer(env, "LOCAL_RANK", worker.rank % per_node),
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


def _refuse_half_launched(env: Mapping[str, str]) -> None:
    num_nodes = env.get("AZUREML_NODE_COUNT", "1")
    if num_nodes != "1":
        raise LaunchError(
            f"AZUREML_NODE_COUNT is {num_nodes}, but RANK and WORLD_SIZE are not set: each node would"
            " train alone and write the same output. Add `distribution: {type: pytorch}` to the job."
        )
    if ("RANK" in env) != ("WORLD_SIZE" in env):
        raise LaunchError("Only one of RANK and WORLD_SIZE is set. Set both or neither.")


def _check(worker: Worker, num_gpus: int) -> Worker:
    if not 0 <= worker.rank < worker.size:
        raise LaunchError(f"RANK {worker.rank} is not from 0 to WORLD_SIZE - 1 = {worker.size - 1}.")
    if 0 < num_gpus < max(worker.local_size, worker.local_rank + 1):
        raise LaunchError(
            f"The process count per node, {max(worker.local_size, worker.local_rank + 1)}, is larger than"
            f" the processing units: this node has {num_gpus} GPUs. Start at most one process per GPU."
        )
    return worker


def _integer(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise LaunchError(f"{name} is {text!r}, expected a whole number.") from None
