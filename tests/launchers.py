"""Environment variables that each launcher sets for one process; `azure_job` has those of a whole
job.
"""

from collections.abc import Mapping
from dataclasses import replace

from train_pytorch_model.machine.launch import Agent, Worker, decide, rank_of

ADDRESS = "10.0.0.4"


def assert_role(environment: Mapping[str, str], num_gpus: int, expected: Worker | Agent) -> None:
    """Check the role that an environment implies, apart from its message, and its rank."""
    part = decide(environment, num_gpus)
    part = (
        replace(part, note="", warning="") if isinstance(part, Worker) else replace(part, note="")
    )
    assert part == expected
    assert rank_of(environment) == (part.rank if isinstance(part, Worker) else part.node_rank)


def azure(rank: int, world_size: int, nodes: int, **more: str) -> dict[str, str]:
    """What Azure ML sets for `distribution: {type: pytorch}`."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": "6105",
        "AZUREML_NODE_COUNT": str(nodes),
        **more,
    }


def torchrun(
    rank: int, world_size: int, local_rank: int, local_size: int, **more: str
) -> dict[str, str]:
    """What torchrun sets for each process that it starts."""
    return {
        "TORCHELASTIC_RUN_ID": "none",
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": "29400",
        **more,
    }


def mpi(
    rank: int, world_size: int, local_rank: int, local_size: int, **more: str
) -> dict[str, str]:
    """What Open MPI sets for each process that it starts."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        **more,
    }


def mpich(
    rank: int, world_size: int, local_rank: int, local_size: int, **more: str
) -> dict[str, str]:
    """What mpiexec of MPICH sets for each process that it starts, and that of Intel MPI."""
    return {
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(world_size),
        "MPI_LOCALRANKID": str(local_rank),
        "MPI_LOCALNRANKS": str(local_size),
        **more,
    }


def prefixed(
    prefix: str, rank: int, world_size: int, local_rank: int, local_size: int
) -> dict[str, str]:
    """What MVAPICH, jsrun and Cray's launcher set for each process that they start."""
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    values = (rank, world_size, local_rank, local_size)
    return {f"{prefix}_{name}": str(value) for name, value in zip(names, values, strict=True)}


def deepspeed(
    rank: int, world_size: int, local_rank: int, local_size: int, nodes: int, address: str
) -> dict[str, str]:
    """What DeepSpeed's launcher sets for each process that it starts."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_SIZE": str(local_size),
        "CROSS_RANK": str(rank // local_size),
        "CROSS_SIZE": str(nodes),
        "MASTER_ADDR": address,
        "MASTER_PORT": "29500",
    }


def batch_ai(rank: int, method: str = f"tcp://{ADDRESS}:6000") -> dict[str, str]:
    """What Azure's Batch AI sets, by which its tutorials find rank and address."""
    return {"AZ_BATCHAI_TASK_INDEX": str(rank), "AZ_BATCHAI_PYTORCH_INIT_METHOD": method}


def srun(
    rank: int,
    world_size: int,
    local_rank: int,
    nodes: str,
    per_node: str,
    node: int = 0,
    **more: str,
) -> dict[str, str]:
    """What srun of Slurm 22.05 sets for each process that it starts, as far as it matters."""
    num_nodes = str(nodes.count(",") + 1 + (2 if "-" in nodes else 0))
    return {
        "SLURM_JOB_ID": "17",
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node),
        "SLURM_NTASKS": str(world_size),
        "SLURM_STEP_NUM_TASKS": str(world_size),
        "SLURM_NNODES": num_nodes,
        "SLURM_STEP_NUM_NODES": num_nodes,
        "SLURM_STEP_NODELIST": nodes,
        "SLURM_STEP_TASKS_PER_NODE": per_node,
        **more,
    }


def sbatch(tasks: int) -> dict[str, str]:
    """What Slurm sets for the script of a batch job, in which nothing is a task without srun."""
    names = {
        "ENVIRONMENT": "BATCH",
        "SLURM_JOB_ID": "17",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
    }
    return {**names, "SLURM_NTASKS": str(tasks), "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "gpu1"}


def pytorch_job(pod: int, pods: int, per_pod: str, **more: str) -> dict[str, str]:
    """What Kubernetes' training operator sets for the pods of a PyTorchJob or TrainJob."""
    return {
        "PET_NNODES": str(pods),
        "PET_NODE_RANK": str(pod),
        "PET_NPROC_PER_NODE": per_pod,
        "PET_MASTER_ADDR": "job-master-0",
        "PET_MASTER_PORT": "23456",
        **more,
    }


def slurm_step(nodes: int, per_node: int, address: str) -> list[dict[str, str]]:
    """The variables of all tasks of a job step, which meet at this address."""
    hosts = ",".join(f"n{node}" for node in range(nodes))
    return [
        srun(
            rank,
            nodes * per_node,
            rank % per_node,
            hosts,
            f"{per_node}(x{nodes})",
            rank // per_node,
        )
        | {"MASTER_ADDR": address}
        for rank in range(nodes * per_node)
    ]
