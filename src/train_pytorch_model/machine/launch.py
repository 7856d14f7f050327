"""How this process was launched, and whether it starts worker processes itself.

`decide` is a pure function of the environment variables and the number of GPUs, tested by a table
of cases.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from train_pytorch_model.config.wording import counted
from train_pytorch_model.errors import UserError
from train_pytorch_model.machine import signs_of_others, slurm
from train_pytorch_model.machine.signs_of_others import INIT_METHOD, TASK_INDEX
from train_pytorch_model.machine.slurm import first_of

PROGRAM = "train_pytorch_model"
DEFAULT_PORT = 6105  # Azure ML's
LOCALHOST = "127.0.0.1"
# This variable tells workers the process id of their launcher.
LAUNCHER = "TRAIN_PYTORCH_MODEL_LAUNCHER"

OPEN_MPI = (
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
)
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")  # and Intel MPI
HOROVOD = ("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE")
MPIS: Mapping[tuple[str, ...], str] = {OPEN_MPI: "MPI", MPICH: "MPI", HOROVOD: "Horovod"}
"""The variables of launchers that set four: rank and size, of the run and of its part on this
node."""
RANKS = (
    "RANK",
    *(rank for rank, *_ in MPIS),
    "MV2_COMM_WORLD_RANK",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    TASK_INDEX,
    "PET_NODE_RANK",
    "SLURM_PROCID",
)
"""The variables that may hold the rank of a process, or of its node."""


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
        where = ["--standalone"]
        if self.num_nodes > 1:
            where = [f"--nnodes={self.num_nodes}", f"--node-rank={self.node_rank}"]
            where += [f"--master-addr={self.master_addr}", f"--master-port={self.master_port}"]
        processes = f"--nproc-per-node={self.num_processes}"
        return shlex.join(["torchrun", *where, processes, "-m", PROGRAM, *arguments])


def decide(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of this process.

    Raises `LaunchError` if variables are missing or contradictory: a process that sees a sign of
    others never takes itself for alone.
    """
    launched = _of_launcher(env, num_gpus)
    if launched is not None:
        return launched
    _refuse_half_launched(env)
    return _alone(env, num_gpus)


def _of_launcher(env: Mapping[str, str], num_gpus: int) -> Worker | Agent | None:
    """Return the role that a launcher has given to this process; None if there is no launcher."""
    if "TORCHELASTIC_RUN_ID" in env:
        return _check(_worker_of_launcher(env, "torchrun"), num_gpus)
    of_mpi = [names for names in MPIS if env.keys() >= set(names)]
    if of_mpi:
        return _check(_worker_of_mpi(of_mpi[0], env, num_gpus), num_gpus)
    if "PET_NNODES" in env:
        return _of_kubernetes(env, num_gpus)
    named = _of_batch_ai(env) or env
    if named.keys() >= {"RANK", "WORLD_SIZE"}:
        return _of_azure_or_other(named, num_gpus)
    # Before Slurm, whose task may be such a launcher's daemon: one for all processes of a node.
    _refuse_signs(env, signs_of_others.UNTRIED)
    if slurm.is_task(env) and slurm.num_tasks(env) != "1":
        return _of_slurm(env, num_gpus)
    return None


def _alone(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of the only process of a run."""
    warning = ""
    num_tasks = slurm.num_tasks(env)
    if num_tasks != "1" and not slurm.is_task(env):
        warning = (
            f"Slurm has a place for {num_tasks} tasks, and this process is the only one: srun"
            " before the command starts one for each."
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
    """Return this process's rank, or its node's, as its variables say, unchecked; 0 when alone."""
    for name in RANKS:
        rank = env.get(name, "")
        if rank.isdecimal():
            return int(rank)
    return 0


def _worker_of_launcher(env: Mapping[str, str], launcher: str) -> Worker:
    rank = _integer(env, "RANK")
    size = _integer(env, "WORLD_SIZE")
    address = env.get("MASTER_ADDR", LOCALHOST)
    is_one_node = address in (LOCALHOST, "localhost")
    return Worker(
        rank=rank,
        size=size,
        local_size=_local_size(env, size if is_one_node else 1),
        local_rank=_integer(env, "LOCAL_RANK", rank if is_one_node else 0),
        master_addr=address,
        master_port=_integer(env, "MASTER_PORT", DEFAULT_PORT),
        note=f"Process {rank} of {size}, started by {launcher}.",
    )


def _is_of_deepspeed(env: Mapping[str, str]) -> bool:
    return "LOCAL_SIZE" in env and "CROSS_SIZE" in env


def _local_size(env: Mapping[str, str], default: int) -> int:
    """Return how many processes run on this node, as torchrun or DeepSpeed says it."""
    return _integer(env, "LOCAL_WORLD_SIZE", _integer(env, "LOCAL_SIZE", default))


def _of_batch_ai(env: Mapping[str, str]) -> Mapping[str, str]:
    """Return the variables of Azure's Batch AI, whose user has set WORLD_SIZE, as torch has them.

    Empty without them. Raises `LaunchError` if they say no address.
    """
    is_complete = all(name in env for name in (TASK_INDEX, INIT_METHOD, "WORLD_SIZE"))
    if "RANK" in env or not is_complete:
        return {}
    address, _, port = env[INIT_METHOD].removeprefix("tcp://").rpartition(":")
    if "/" in address or not (address and port.isdecimal()):
        raise LaunchError(
            f"{INIT_METHOD} is {env[INIT_METHOD]!r}, expected an address such as"
            " tcp://10.0.0.4:6000. Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead."
        )
    return {**env, "RANK": env[TASK_INDEX], "MASTER_ADDR": address, "MASTER_PORT": port}


def _refuse_elastic_horovod(env: Mapping[str, str]) -> None:
    """Raise `LaunchError` if the number of processes may change."""
    if env.get("HOROVOD_ELASTIC", "0") != "0":
        raise LaunchError(
            f"HOROVOD_ELASTIC is {env['HOROVOD_ELASTIC']}: the number of processes may change,"
            " and a training needs a fixed one. Start them with `horovodrun -np N`, without"
            " --min-np and"
            " --max-np."
        )


def _worker_of_mpi(names: tuple[str, ...], env: Mapping[str, str], num_gpus: int) -> Worker:
    """Return the rank that a launcher with four variables, such as MPI, has started."""
    launcher = MPIS[names]
    if names == HOROVOD:
        _refuse_elastic_horovod(env)
    rank, size, local_rank, local_size = (_integer(env, name) for name in names)
    address, _, port_of_azure_batch = env.get("AZ_BATCH_MASTER_NODE", "").partition(":")
    address = address or first_of(env, "AZ_BATCHAI_MPI_MASTER_NODE", "MASTER_ADDR")
    if local_size < size:
        address = address or slurm.first_host(env)
        if not address:
            raise LaunchError(
                f"{launcher} has started {size} processes on several nodes, and none of"
                " AZ_BATCH_MASTER_NODE, AZ_BATCHAI_MPI_MASTER_NODE and MASTER_ADDR says where they"
                " meet. Set MASTER_ADDR to the address of the first node."
            )
    port = env.get("MASTER_PORT", "") or port_of_azure_batch  # the user's choice comes first
    return Worker(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        master_addr=address or LOCALHOST,
        master_port=int(port) if port.isdecimal() else DEFAULT_PORT,
        note=f"{launcher} has started {_processes(size)}, {local_size} on this node.",
        warning=_idle(num_gpus, local_size, launcher),
    )


def _of_kubernetes(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of the process of a pod, in a PyTorchJob or TrainJob.

    It fills the pod's GPUs.
    """
    num_nodes = _num_pods(env)
    num_processes = max(num_gpus, 1)
    per_node = env.get("PET_NPROC_PER_NODE", "")
    if per_node.isdecimal() and int(per_node) > 1:
        num_processes = int(per_node)
    node = Worker(
        rank=_integer(env, "PET_NODE_RANK", _integer(env, "RANK", 0)),
        size=num_nodes,
        master_addr=env.get("PET_MASTER_ADDR") or env.get("MASTER_ADDR", LOCALHOST),
        master_port=_integer(env, "PET_MASTER_PORT", _integer(env, "MASTER_PORT", DEFAULT_PORT)),
        note=f"Kubernetes has started one process per pod, in {counted(num_nodes, 'pod', 'pods')}.",
    )
    return _fill(node, num_processes)


def _num_pods(env: Mapping[str, str]) -> int:
    """Return the number of pods. Raises `LaunchError` if it may change, or this one is unknown."""
    text = env["PET_NNODES"]
    if ":" in text:
        raise LaunchError(
            f"PET_NNODES is {text}: the number of pods may change, and a training needs a fixed"
            " one."
            " Remove `elasticPolicy` from the PyTorchJob; elsewhere, set PET_NNODES to the number"
            " of nodes, and PET_NODE_RANK to the number of this one, from 0."
        )
    num_nodes = _integer(env, "PET_NNODES")
    if num_nodes > 1 and not ("PET_NODE_RANK" in env or "RANK" in env):
        raise LaunchError(
            f"PET_NNODES is {num_nodes}, and PET_NODE_RANK is missing. Set it to the number of this"
            " node, from 0."
        )
    return num_nodes


def _of_slurm(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of a task of srun: one per node fills its GPUs, others are ranks."""
    worker = _worker_of_slurm(env, num_gpus)
    if slurm.num_tasks(env) == slurm.num_nodes(env):
        return _fill(worker, max(num_gpus, 1))
    # A task that sees its own GPU only says nothing of the GPUs of the node.
    is_bound = num_gpus == 1 and ("SLURM_GPUS_PER_TASK" in env or "SLURM_GPU_BIND" in env)
    return _check(worker, 0 if is_bound else num_gpus)


def _worker_of_slurm(env: Mapping[str, str], num_gpus: int) -> Worker:
    size = slurm.num_tasks(env)
    local_size = slurm.num_tasks_here(env)
    address = env.get("MASTER_ADDR")
    if not address:
        address = LOCALHOST if slurm.num_nodes(env) == "1" else slurm.first_host(env)
    if not local_size.isdecimal() or not address:
        raise LaunchError(
            f"srun has started {size} tasks, and the variables that should say how many run on this"
            " node and where the first one runs are missing: SLURM_STEP_TASKS_PER_NODE and"
            " SLURM_NODEID, and SLURM_JOB_NODELIST. Start the program with srun itself, or with"
            " torchrun."
        )
    return Worker(
        rank=_integer(env, "SLURM_PROCID"),
        size=int(size),
        local_rank=_integer(env, "SLURM_LOCALID"),
        local_size=int(local_size),
        master_addr=address,
        master_port=_integer(env, "MASTER_PORT", slurm.port(env, DEFAULT_PORT)),
        note=f"Slurm has started {_processes(int(size))}, {local_size} on this node.",
        warning=_idle(num_gpus, int(local_size), "Slurm"),
    )


def _of_azure_or_other(env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    launcher = "DeepSpeed" if _is_of_deepspeed(env) else "a launcher that sets RANK and WORLD_SIZE"
    worker = _worker_of_launcher(env, launcher)
    if "AZUREML_NODE_COUNT" in env:
        return _of_azure(worker, env, num_gpus)
    if worker.size == 1:  # such as a pod of Kubernetes
        return _fill(worker, max(num_gpus, 1))
    return _check(replace(worker, warning=_warning(worker, env, num_gpus)), num_gpus)


def _warning(worker: Worker, env: Mapping[str, str], num_gpus: int) -> str:
    """Return what is said to the processes of a launcher that is not known."""
    if _is_of_deepspeed(env):
        return _idle(num_gpus, worker.local_size, "DeepSpeed")
    warning = (
        "RANK and WORLD_SIZE are set, but not by torchrun or Azure ML: this process runs as that"
        " rank and starts no other processes."
    )
    # One that says which process of the node this is, and not of how many, may have used all GPUs.
    is_known = "LOCAL_RANK" not in env or "LOCAL_WORLD_SIZE" in env
    idle = _idle(num_gpus, worker.local_size, "the launcher") if is_known else ""
    return f"{warning} {idle}".rstrip()


def _of_azure(worker: Worker, env: Mapping[str, str], num_gpus: int) -> Worker | Agent:
    """Return the role of a process of Azure ML: one per node fills its GPUs, others are ranks."""
    num_nodes = _integer(env, "AZUREML_NODE_COUNT")
    if num_nodes < 1 or worker.size % num_nodes:
        raise LaunchError(
            f"WORLD_SIZE {worker.size} is not a multiple of AZUREML_NODE_COUNT {num_nodes}: every"
            " node needs the same number of processes."
        )
    per_node = worker.size // num_nodes
    nodes = counted(num_nodes, "node", "nodes")
    if per_node == 1 and num_gpus > 1:
        return Agent(
            num_processes=num_gpus,
            num_nodes=num_nodes,
            node_rank=_integer(env, "NODE_RANK", worker.rank),
            master_addr=worker.master_addr,
            master_port=worker.master_port,
            note=f"Azure ML has started one process per node, on {nodes}; this one has {num_gpus}"
            " GPUs and gets a process for each.",
        )
    placed = replace(
        worker,
        local_rank=_integer(env, "LOCAL_RANK", worker.rank % per_node),
        local_size=per_node,
        note=f"Azure ML has started {_processes(per_node)} per node, on {nodes}; no more are"
        " started.",
    )
    return _check(placed, num_gpus)


def _fill(node: Worker, num_processes: int) -> Worker | Agent:
    """Return the role of the one process that a launcher has started on each node."""
    _check(node, 0)
    if num_processes == 1:
        return replace(node, warning="")
    return Agent(
        num_processes=num_processes,
        num_nodes=node.size,
        node_rank=node.rank,
        master_addr=node.master_addr,
        master_port=node.master_port,
        note=f"{node.note} This one starts {num_processes}.",
    )


def _idle(num_gpus: int, local_size: int, launcher: str) -> str:
    """Return a warning about GPUs without a process."""
    if num_gpus <= local_size:
        return ""
    idle = f"{num_gpus - local_size} of {num_gpus} GPUs are idle"
    return f"{idle}: {launcher} started {_processes(local_size)} on this node."


def _processes(count: int) -> str:
    return counted(count, "process", "processes")


def _refuse_half_launched(env: Mapping[str, str]) -> None:
    """Raise `LaunchError` if there are signs of other processes."""
    num_nodes = env.get("AZUREML_NODE_COUNT", "1")
    if num_nodes != "1":
        raise LaunchError(
            f"AZUREML_NODE_COUNT is {num_nodes}, but RANK and WORLD_SIZE are not set: each node"
            " would train alone and write the same output. Add `distribution: {type: pytorch}` to"
            " the job."
        )
    if ("RANK" in env) != ("WORLD_SIZE" in env):
        raise LaunchError("Only one of RANK and WORLD_SIZE is set. Set both or neither.")
    # srun, too, sets PMIX_RANK, of its only task here.
    last = signs_of_others.TASK if slurm.is_task(env) else signs_of_others.PMIX
    _refuse_signs(env, [*signs_of_others.INCOMPLETE, last])


def _refuse_signs(env: Mapping[str, str], signs: Sequence[signs_of_others.Sign]) -> None:
    refusal = signs_of_others.refusal_of(env, signs)
    if refusal:
        raise LaunchError(refusal)


def _check(worker: Worker, num_gpus: int) -> Worker:
    """Return the worker. Raises `LaunchError` if its rank, or one of its node, cannot be."""
    if not 0 <= worker.rank < worker.size:
        raise LaunchError(
            f"RANK {worker.rank} is not from 0 to WORLD_SIZE - 1 = {worker.size - 1}."
        )
    per_node = max(worker.local_size, worker.local_rank + 1)
    if 0 < num_gpus < per_node:
        raise LaunchError(
            f"The process count per node, {per_node}, is larger than the processing units: this"
            f" node has {num_gpus} GPUs. Start at most one process per GPU."
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
