"""Signs of other processes, in the variables of launchers that say too little to place this one.

A process that sees one, and cannot place itself, is refused: it would train alone, as all others.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

INIT_METHOD = "AZ_BATCHAI_PYTORCH_INIT_METHOD"
TASK_INDEX = "AZ_BATCHAI_TASK_INDEX"

OF_MPI = (
    "a launcher of MPI has started this process, in a way from which this program cannot tell how"
    " many run on this node. Start the program with torchrun, srun, or mpiexec of Open MPI or"
    " MPICH."
)
OF_HOROVOD = (
    "Horovod has started this process, and HOROVOD_RANK, HOROVOD_SIZE, HOROVOD_LOCAL_RANK and"
    " HOROVOD_LOCAL_SIZE are not all set. Start the program with `horovodrun -np N` or torchrun."
)
OF_BATCH_AI = (
    "this process is one of several, and nothing says of how many. Set WORLD_SIZE to the number of"
    f" all processes, beside {TASK_INDEX} and {INIT_METHOD}; in a job of Azure ML,"
    " `distribution: {type: pytorch}` sets all that is needed."
)
OF_ANY = (
    "this process is one of several, and without RANK and WORLD_SIZE it cannot tell which. Start"
    " the program with torchrun, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; if it is"
    " alone, unset the variable."
)


class Sign(NamedTuple):
    """What a launcher says of a run, and why that is not enough."""

    name: str  # of the variable
    alone: str  # its value for the only process of a run
    refusal: str


UNTRIED = (
    Sign("MV2_COMM_WORLD_SIZE", "1", OF_MPI),  # MVAPICH
    Sign("MV2_COMM_WORLD_RANK", "0", OF_MPI),
    Sign("JSM_NAMESPACE_SIZE", "1", OF_MPI),  # jsrun
    Sign("JSM_NAMESPACE_RANK", "0", OF_MPI),
)
"""Of launchers that could not be tried."""
INCOMPLETE = (
    Sign("OMPI_COMM_WORLD_SIZE", "1", OF_MPI),
    Sign("OMPI_COMM_WORLD_RANK", "0", OF_MPI),
    Sign("PMI_SIZE", "1", OF_MPI),
    Sign("PMI_RANK", "0", OF_MPI),
    Sign("HOROVOD_SIZE", "1", OF_HOROVOD),
    Sign("HOROVOD_RANK", "0", OF_HOROVOD),
    Sign(TASK_INDEX, "0", OF_BATCH_AI),
    Sign(INIT_METHOD, "", OF_BATCH_AI),
    Sign("FLUX_JOB_SIZE", "1", OF_ANY),
    Sign("FLUX_TASK_RANK", "0", OF_ANY),
    Sign("CROSS_SIZE", "1", OF_ANY),
    Sign("LOCAL_WORLD_SIZE", "1", OF_ANY),
    Sign("LOCAL_RANK", "0", OF_ANY),
    Sign("NODE_RANK", "0", OF_ANY),
    Sign("PET_NODE_RANK", "0", OF_ANY),
)
"""Of launchers whose processes have more variables than these, unless something is wrong."""
TASK = Sign("SLURM_PROCID", "0", OF_ANY)  # of a task of srun
PMIX = Sign("PMIX_RANK", "", OF_MPI)  # of any other process


def refusal_of(env: Mapping[str, str], signs: Sequence[Sign]) -> str:
    """Return why this process is refused, by the first sign that others run; empty without one."""
    for name, alone, refusal in signs:
        value = env.get(name, alone)
        if value != alone:
            return f"{name} is {value}: {refusal}"
    return ""
