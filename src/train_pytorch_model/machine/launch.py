"""How this process was launched, and whether it starts worker processes itself.

`decide` is a pure function of the environment variables and the number of GPUs, tested by a table
of cases.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace

from train_pytorch_model.config.wording import counted
from train_pytorch_model.errors import UserError

PROGRAM = "train_pytorch_model"
DEFAULT_PORT = 6105  # Azure ML's
SLURM_PORTS = range(10_000, 30_000)  # below those that Linux gives to clients
LOCALHOST = "127.0.0.1"
LAUNCHER = (
    "TRAIN_PYTORCH_MODEL_LAUNCHER"  # variable: tells workers the process id of their launcher
)

_PARTS = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
MPIS: Sequence[Sequence[str]] = (
    [f"OMPI_COMM_WORLD_{part}" for part in _PARTS],  # Open MPI
    [f"MV2_COMM_WORLD_{part}" for part in _PARTS],  # MVAPICH
    [f"JSM_NAMESPACE_{part}" for part in _PARTS],  # jsrun
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],  # MPICH and Intel MPI
    [f"PMI_{part}" for part in _PARTS],  # Cray
)
"""The variables of each kind of MPI: rank and size, of the run and of its part on this node."""


class LaunchError(UserError):
    """The processes were started in a way that cannot work."""

    exit_status = 2


@dataclass(frozen=True)
class Worker:
    """This process trains: alone, or as one rank of a group that has been launched."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1
    master_addr: str = LOCALHOST
    master_port: int = DEFAULT_PORT
    note: str = ""  # how the process was launched, for the log
    warning: str = ""

    def variables(self) -> dict[str, str]:
        """Return the environment variables that torch.distributed reads."""
        names = (
            "RANK",
            "WORLD_SIZE",
            "LOCAL_RANK",
            "LOCAL_WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
        )
        return {
            name: str(value) for name, value in zip(names, astuple(self)[: len(names)], strict=True)
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
        where = ["--standalone"]
        if self.num_nodes > 1:
            where = [f"--nnodes={self.num_nodes}", f"--node-rank={self.node_rank}"]
            where += [f"--master-addr={self.master_addr}", f"--master-port={self.master_port}"]
        processes = f"--nproc-per-node={self.num_processes}"
        return shlex.join(["torchrun", *where, processes, "-m", PROGRAM, *arguments])


def decide(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of this process.

    Raises `LaunchError` if variables are missing or contradictory.
    """
    if "TORCHELASTIC_RUN_ID" in env:
        return _check(_worker_of_launcher(env, "torchrun"), num_gpus)
    for names in MPIS:
        if all(name in env for name in names):
            return _check(_worker_of_mpi(names, env, num_gpus), num_gpus)
    if "PET_NNODES" in env:
        return _of_kubernetes(env, num_gpus)
    if "RANK" in env and "WORLD_SIZE" in env:
        return _of_azure_or_other(env, num_gpus)
    if _is_slurm_task(env) and _slurm_tasks(env) != "1":
        return _of_slurm(env, num_gpus)
    _refuse_half_launched(env)
    warning = ""
    if _slurm_tasks(env) != "1" and not _is_slurm_task(env):
        warning = (
            f"Slurm has a place for {_slurm_tasks(env)} tasks, and this process is the only one:"
            " srun before"
            " the command starts one for each."
        )
    if num_gpus > 1:
        note = f"{num_gpus} GPUs, and no launcher has started a process for each. {warning}"
        return Agent(num_gpus, note=note.rstrip())
    return Worker(warning=warning)


def is_alone(env: Mapping[str, str]) -> bool:
    """Return whether no launcher has started other processes of the run. Raises `LaunchError`."""
    part = decide(env, num_gpus=0)
    return isinstance(part, Worker) and part.size == 1


def rank_of(env: Mapping[str, str]) -> int:
    """Return this process's rank, or its node's, according to its variables, unchecked; 0 when
    alone.
    """
    names = ("RANK", *(rank for rank, *_ in MPIS), "PET_NODE_RANK", "SLURM_PROCID")
    return next((int(env[name]) for name in names if env.get(name, "").isdecimal()), 0)


def _worker_of_launcher(env: Mapping[str, str], launcher: str) -> Worker:
    rank, size = _integer(env, "RANK"), _integer(env, "WORLD_SIZE")
    address = env.get("MASTER_ADDR", LOCALHOST)
    is_one_node = address in (LOCALHOST, "localhost")
    local_size = _integer(env, "LOCAL_WORLD_SIZE", size if is_one_node else 1)
    local_rank = _integer(env, "LOCAL_RANK", rank if is_one_node else 0)
    port = _integer(env, "MASTER_PORT", DEFAULT_PORT)
    note = f"Process {rank} of {size}, started by {launcher}."
    return Worker(rank, size, local_rank, local_size, address, port, note)


def _worker_of_mpi(names: Sequence[str], env: Mapping[str, str], num_gpus: int) -> Worker:
    rank, size, local_rank, local_size = (_integer(env, name) for name in names)
    address, _, port = env.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = address or _first_of(env, "AZ_BATCHAI_MPI_MASTER_NODE", "MASTER_ADDR")
    if local_size < size and not (address := address or first_host_of_slurm(env)):
        raise LaunchError(
            f"MPI has started {size} processes on several nodes, and none of AZ_BATCH_MASTER_NODE,"
            " AZ_BATCHAI_MPI_MASTER_NODE and MASTER_ADDR says where they meet. Set MASTER_ADDR to"
            " the"
            " address of the first node."
        )
    port = env.get("MASTER_PORT", "") or port  # the user's choice overrides Azure Batch's
    meeting = address or LOCALHOST, int(port) if port.isdecimal() else DEFAULT_PORT
    note = f"MPI has started {_processes(size)}, {local_size} on this node."
    return Worker(
        rank, size, local_rank, local_size, *meeting, note, _idle(num_gpus, local_size, "MPI")
    )


def _of_kubernetes(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of the process of a pod, in a PyTorchJob or TrainJob: it fills the pod's
    GPUs.
    """
    num_nodes = _integer(env, "PET_NNODES")
    per_node = env.get("PET_NPROC_PER_NODE", "")
    num_processes = (
        int(per_node) if per_node.isdecimal() and int(per_node) > 1 else max(num_gpus, 1)
    )
    rank = _integer(env, "PET_NODE_RANK", _integer(env, "RANK", 0))
    address = env.get("PET_MASTER_ADDR") or env.get("MASTER_ADDR", LOCALHOST)
    port = _integer(env, "PET_MASTER_PORT", _integer(env, "MASTER_PORT", DEFAULT_PORT))
    note = f"Kubernetes has started one process per pod, in {counted(num_nodes, 'pod', 'pods')}."
    return _fill(Worker(rank, num_nodes, 0, 1, address, port, note), num_processes)


def _of_slurm(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of a task that srun has started: one per node fills its GPUs, others are
    ranks.
    """
    size = _slurm_tasks(env)
    num_nodes = _first_of(env, "SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES") or "1"
    local_size = size if num_nodes == "1" else _slurm_tasks_here(env)
    address = env.get("MASTER_ADDR") or (
        LOCALHOST if num_nodes == "1" else first_host_of_slurm(env)
    )
    if not local_size.isdecimal() or not address:
        raise LaunchError(
            f"srun has started {size} tasks, and the variables that should say how many run on this"
            " node and"
            " where the first one runs are missing: SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID, and"
            " SLURM_JOB_NODELIST. Start the program with srun itself, or with torchrun."
        )
    rank, local_rank = _integer(env, "SLURM_PROCID"), _integer(env, "SLURM_LOCALID")
    port = _integer(env, "MASTER_PORT", port_of_slurm(env))
    note = f"Slurm has started {_processes(int(size))}, {local_size} on this node."
    idle = _idle(num_gpus, int(local_size), "Slurm")
    worker = Worker(rank, int(size), local_rank, int(local_size), address, port, note, idle)
    if size == num_nodes:
        return _fill(worker, max(num_gpus, 1))
    is_bound = num_gpus == 1 and any(
        name in env for name in ("SLURM_GPUS_PER_TASK", "SLURM_GPU_BIND")
    )
    return _check(worker, 0 if is_bound else num_gpus)


def _of_azure_or_other(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    worker = _worker_of_launcher(env, "a launcher that sets RANK and WORLD_SIZE")
    if "AZUREML_NODE_COUNT" not in env:
        if worker.size == 1:  # such as a pod of Kubernetes
            return _fill(worker, max(num_gpus, 1))
        warning = (
            "RANK and WORLD_SIZE are set, but not by torchrun or Azure ML: this process runs as"
            " that rank and"
            " starts no other processes."
        )
        idle = _idle(num_gpus, worker.local_size, "the launcher")
        return _check(replace(worker, warning=f"{warning} {idle}".rstrip()), num_gpus)
    num_nodes = _integer(env, "AZUREML_NODE_COUNT")
    if num_nodes < 1 or worker.size % num_nodes:
        raise LaunchError(
            f"WORLD_SIZE {worker.size} is not a multiple of AZUREML_NODE_COUNT {num_nodes}: every"
            " node"
            " needs the same number of processes."
        )
    per_node, nodes = worker.size // num_nodes, counted(num_nodes, "node", "nodes")
    if per_node == 1 and num_gpus > 1:
        node_rank = _integer(env, "NODE_RANK", worker.rank)
        note = f"Azure ML has started one process per node, on {nodes}; this one has {num_gpus} GPUs and gets"
        address = worker.master_addr, worker.master_port
        return Agent(num_gpus, num_nodes, node_rank, *address, note=f"{note} a process for each.")
    local_rank = _integer(env, "LOCAL_RANK", worker.rank % per_node)
    note = f"Azure ML has started {_processes(per_node)} per node, on {nodes}; no more are started."
    return _check(replace(worker, local_rank=local_rank, local_size=per_node, note=note), num_gpus)


def _fill(node: Worker, num_processes: int) -> Worker | Agent:
    """Return the role of the one process that a launcher has started on each node."""
    _check(node, 0)
    if num_processes == 1:
        return replace(node, warning="")
    address = node.master_addr, node.master_port
    note = f"{node.note} This one starts {num_processes}."
    return Agent(num_processes, node.size, node.rank, *address, note=note)


def _idle(num_gpus: int, local_size: int, launcher: str) -> str:
    """Return a warning about GPUs without a process."""
    if num_gpus <= local_size:
        return ""
    idle = f"{num_gpus - local_size} of {num_gpus} GPUs are idle"
    return f"{idle}: {launcher} started {_processes(local_size)} on this node."


def _processes(count: int) -> str:
    return counted(count, "process", "processes")


def _refuse_half_launched(env: Mapping[str, str]) -> None:
    num_nodes = env.get("AZUREML_NODE_COUNT", "1")
    if num_nodes != "1":
        raise LaunchError(
            f"AZUREML_NODE_COUNT is {num_nodes}, but RANK and WORLD_SIZE are not set: each node"
            " would"
            " train alone and write the same output. Add `distribution: {type: pytorch}` to the"
            " job."
        )
    if ("RANK" in env) != ("WORLD_SIZE" in env):
        raise LaunchError("Only one of RANK and WORLD_SIZE is set. Set both or neither.")
    names = [size for _, size, *_ in MPIS if env.get(size, "1") != "1"]
    names += ["PMIX_RANK"] if "PMIX_RANK" in env else []
    if names and not _is_slurm_task(env):  # one that srun has started says what is missing here
        raise LaunchError(
            f"{names[0]} is {env[names[0]]}: a launcher of MPI has started this process, in a way"
            " that does"
            " not say how many run on this node. Start the program with torchrun, srun, or mpiexec"
            " of Open"
            " MPI, MPICH or MVAPICH."
        )


def _check(worker: Worker, num_gpus: int) -> Worker:
    if not 0 <= worker.rank < worker.size:
        raise LaunchError(
            f"RANK {worker.rank} is not from 0 to WORLD_SIZE - 1 = {worker.size - 1}."
        )
    if 0 < num_gpus < (count := max(worker.local_size, worker.local_rank + 1)):
        raise LaunchError(
            f"The process count per node, {count}, is larger than the processing units: this node"
            " has"
            f" {num_gpus} GPUs. Start at most one process per GPU."
        )
    return worker


def _is_slurm_task(env: Mapping[str, str]) -> bool:
    """Return whether srun has started this process: as one of many, the script of a batch job is
    not.
    """
    return "SLURM_PROCID" in env and ("SLURM_STEP_ID" in env or env.get("ENVIRONMENT") != "BATCH")


def _slurm_tasks(env: Mapping[str, str]) -> str:
    """Return the number of tasks: of the step, which may have fewer than the job."""
    return _first_of(env, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS") or "1"


def _slurm_tasks_here(env: Mapping[str, str]) -> str:
    """Return the number of tasks on this node, of several; empty if the variables do not say."""
    # For example `4(x2),1`: four on each of the first two nodes, one on the third.
    per_node = _first_of(env, "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
    runs: list[tuple[str, str]] = re.findall(r"(\d+)(?:\(x(\d+)\))?", per_node)
    counts = [count for count, times in runs for _ in range(int(times or 1))]
    node = env.get("SLURM_NODEID", "")
    if node.isdecimal() and int(node) < len(counts):
        return counts[int(node)]
    return env.get("SLURM_NTASKS_PER_NODE", "")


def first_host_of_slurm(env: Mapping[str, str]) -> str:
    """Return the name of the first node, on which rank 0 runs; empty if the variables do not say."""
    # For example `gpu[01-04,07],login`.
    hosts = _first_of(env, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
    first = re.sub(r"(?<=\[)(\w+)[^]]*", r"\1", hosts).partition(",")[0]
    return first.replace("[", "").replace("]", "")


def port_of_slurm(env: Mapping[str, str]) -> int:
    """Return a port that differs from that of other jobs and steps on the node, if there is a job
    id.
    """
    job, step = env.get("SLURM_JOB_ID", ""), env.get("SLURM_STEP_ID", "0")
    if not job.isdecimal():
        return DEFAULT_PORT
    return SLURM_PORTS[(31 * int(job) + (int(step) if step.isdecimal() else 0)) % len(SLURM_PORTS)]


def _first_of(env: Mapping[str, str], *names: str) -> str:
    """Return the first of these variables that is set and not empty; else an empty text."""
    return next(filter(None, map(env.get, names)), "")


def _integer(env: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = env.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise LaunchError(f"{name} is {text!r}, expected a whole number.") from None
