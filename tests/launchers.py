"""Environment variables that each launcher sets for one process; `azure_job` has those of a whole job."""

ADDRESS = "10.0.0.4"


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


def torchrun(rank: int, world_size: int, local_rank: int, local_size: int, **more: str) -> dict[str, str]:
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


def mpi(rank: int, world_size: int, local_rank: int, local_size: int, **more: str) -> dict[str, str]:
    """What Open MPI sets for each process that it starts."""
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world_size),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        **more,
    }
