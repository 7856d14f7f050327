"""Environment variables that Azure ML sets for the processes of a job, by its type of distribution.

The address of the main process depends on the machine, so the caller passes it.
"""

from collections.abc import Iterator

PORT = "6105"
BATCH_PORT = "6000"  # of Azure Batch, which starts the nodes


def pytorch_job(nodes: int, per_node: int, address: str) -> list[dict[str, str]]:
    """The environment of each process for `distribution: {type: pytorch}`, ordered by rank."""
    size = nodes * per_node
    return [
        {
            "RANK": str(rank),
            "WORLD_SIZE": str(size),
            "NODE_RANK": str(node),
            "LOCAL_RANK": str(local_rank),
            "MASTER_ADDR": address,
            "MASTER_PORT": PORT,
            "AZUREML_NODE_COUNT": str(nodes),
        }
        for rank, node, local_rank in _ranks(nodes, per_node)
    ]


def mpi_job(nodes: int, per_node: int, address: str) -> list[dict[str, str]]:
    """The environment of each process for `distribution: {type: mpi}`, as Open MPI starts it."""
    master = (
        {"AZ_BATCHAI_MPI_MASTER_NODE": address}
        if nodes == 1
        else {"AZ_BATCH_MASTER_NODE": f"{address}:{BATCH_PORT}"}
    )
    return [
        {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(nodes * per_node),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(per_node),
            "OMPI_COMM_WORLD_NODE_RANK": str(
                local_rank
            ),  # Open MPI's name for the rank within a node
            "AZUREML_NODE_COUNT": str(nodes),
            **master,
        }
        for rank, _, local_rank in _ranks(nodes, per_node)
    ]


def _ranks(nodes: int, per_node: int) -> Iterator[tuple[int, int, int]]:
    """Yield (rank, node, rank within the node) of each process."""
    for rank in range(nodes * per_node):
        yield rank, *divmod(rank, per_node)
