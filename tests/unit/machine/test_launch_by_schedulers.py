"""Launches by schedulers and by MPI other than Azure's: a table of environments, and the role of
each.
"""

from collections.abc import Mapping

import pytest
from tests.launchers import (
    ADDRESS,
    assert_role,
    batch_ai,
    deepspeed,
    mpich,
    prefixed,
    pytorch_job,
    sbatch,
    srun,
    torchrun,
)

from train_pytorch_model.machine.launch import (
    DEFAULT_PORT,
    Agent,
    LaunchError,
    Worker,
    decide,
    rank_of,
)

HERE = "127.0.0.1"
PORT = 10_527  # of job 17, step 0
POD = ("job-master-0", 23456)


@pytest.mark.parametrize(
    ("environment", "num_gpus", "expected"),
    [
        pytest.param(mpich(2, 4, 2, 4), 4, Worker(2, 4, 2, 4, HERE, DEFAULT_PORT), id="MPICH"),
        pytest.param(
            mpich(2, 4, 2, 4, AZUREML_NODE_COUNT="1", AZUREML_RUN_ID="r"),
            4,
            Worker(2, 4, 2, 4, HERE, DEFAULT_PORT),
            id="Intel MPI in an Azure job",
        ),
        pytest.param(
            mpich(5, 8, 1, 4, AZUREML_NODE_COUNT="2", AZ_BATCH_MASTER_NODE="10.0.0.4:6000"),
            4,
            Worker(5, 8, 1, 4, "10.0.0.4", 6000),
            id="Intel MPI on two nodes of Azure",
        ),
        pytest.param(
            srun(0, 2, 0, "gpu[1-3]", "1") | mpich(5, 8, 1, 4),
            4,
            Worker(5, 8, 1, 4, "gpu1", DEFAULT_PORT),
            id="Intel MPI, whose proxies are tasks of Slurm",
        ),
        pytest.param(
            srun(2, 4, 2, "vm", "4"), 4, Worker(2, 4, 2, 4, HERE, PORT), id="srun, a task per GPU"
        ),
        pytest.param(
            srun(2, 4, 2, "vm", "4", PMI_RANK="2", PMI_SIZE="4", PMIX_RANK="2"),
            0,
            Worker(2, 4, 2, 4, HERE, PORT),
            id="srun with PMI",
        ),
        pytest.param(
            srun(2, 4, 2, "vm", "4") | prefixed("PMI", 2, 4, 2, 4),
            4,
            Worker(2, 4, 2, 4, HERE, PORT),
            id="srun on a Cray",
        ),
        pytest.param(
            srun(0, 1, 0, "vm", "1", PMI_RANK="0", PMI_SIZE="1", PMIX_RANK="0"),
            4,
            Agent(4),
            id="srun with PMI, one task",
        ),
        pytest.param(
            prefixed("MV2_COMM_WORLD", 0, 1, 0, 1), 2, Agent(2), id="MVAPICH, one process"
        ),
        pytest.param(
            prefixed("JSM_NAMESPACE", 3, 4, 3, 4) | torchrun(1, 4, 1, 2),
            2,
            Worker(1, 4, 1, 2, ADDRESS, 29400),
            id="torchrun under jsrun",
        ),
        pytest.param(
            prefixed("JSM_NAMESPACE", 3, 4, 3, 4)
            | {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"},
            4,
            Worker(3, 4, 3, 4, HERE, DEFAULT_PORT),
            id="jsrun with RANK and WORLD_SIZE of the user's own",
        ),
        pytest.param(
            {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "2", "SLURM_NNODES": "1"},
            4,
            Worker(2, 4, 2, 4, HERE, DEFAULT_PORT),
            id="srun, the oldest variables",
        ),
        pytest.param(
            srun(8, 9, 0, "gpu[01-03]", "4(x2),1", node=2),
            4,
            Worker(8, 9, 0, 1, "gpu01", PORT),
            id="srun, nodes of different sizes",
        ),
        pytest.param(
            srun(5, 8, 1, "a,b", "4(x2)", node=1, MASTER_ADDR="c", MASTER_PORT="1234"),
            4,
            Worker(5, 8, 1, 4, "c", 1234),
            id="srun, an address of the user's own",
        ),
        pytest.param(
            srun(1, 2, 0, "gpu[7,9]", "1(x2)", node=1),
            4,
            Agent(4, 2, 1, "gpu7", PORT),
            id="srun, a task per node fills its GPUs",
        ),
        pytest.param(
            srun(1, 2, 0, "gpu[7,9]", "1(x2)", node=1),
            0,
            Worker(1, 2, 0, 1, "gpu7", PORT),
            id="srun, a task per node without GPUs",
        ),
        pytest.param(srun(0, 1, 0, "vm", "1"), 4, Agent(4), id="srun, one task"),
        pytest.param(
            srun(2, 4, 2, "vm", "4", SLURM_GPUS_PER_TASK="1"),
            1,
            Worker(2, 4, 2, 4, HERE, PORT),
            id="srun, tasks that see their own GPU only",
        ),
        pytest.param(sbatch(4), 0, Worker(), id="a batch script without srun"),
        pytest.param(sbatch(4), 2, Agent(2), id="a batch script without srun, two GPUs"),
        pytest.param(pytorch_job(0, 1, "auto"), 4, Agent(4, 1, 0, *POD), id="a pod of four GPUs"),
        pytest.param(
            pytorch_job(1, 2, "4", RANK="1", WORLD_SIZE="8"),
            4,
            Agent(4, 2, 1, *POD),
            id="two pods of four GPUs",
        ),
        pytest.param(
            pytorch_job(1, 2, "1"), 0, Worker(1, 2, 0, 1, *POD), id="two pods without GPUs"
        ),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": POD[0], "MASTER_PORT": "23456"},
            4,
            Agent(4, 1, 0, *POD),
            id="a pod of an older operator",
        ),
        pytest.param(
            prefixed("HOROVOD", 1, 2, 1, 2),
            2,
            Worker(1, 2, 1, 2, HERE, DEFAULT_PORT),
            id="Horovod, one node",
        ),
        pytest.param(
            prefixed("HOROVOD", 5, 8, 1, 4) | {"MASTER_ADDR": ADDRESS, "MASTER_PORT": "1234"},
            4,
            Worker(5, 8, 1, 4, ADDRESS, 1234),
            id="Horovod, two nodes",
        ),
        pytest.param(
            deepspeed(1, 2, 1, 2, 1, HERE), 2, Worker(1, 2, 1, 2, HERE, 29500), id="DeepSpeed"
        ),
        pytest.param(
            deepspeed(5, 8, 1, 4, 2, ADDRESS),
            4,
            Worker(5, 8, 1, 4, ADDRESS, 29500),
            id="DeepSpeed, two nodes",
        ),
        pytest.param(
            batch_ai(1) | {"WORLD_SIZE": "2"},
            1,
            Worker(1, 2, 0, 1, ADDRESS, 6000),
            id="Batch AI, of whose size its user tells",
        ),
    ],
)
def test_the_environment_decides_the_role_of_a_process(
    environment: Mapping[str, str], num_gpus: int, expected: Worker | Agent
) -> None:
    assert_role(environment, num_gpus, expected)


@pytest.mark.parametrize(
    ("environment", "num_gpus", "warning"),
    [
        (
            srun(0, 2, 0, "vm", "2"),
            4,
            "2 of 4 GPUs are idle: Slurm started 2 processes on this node.",
        ),
        (srun(0, 4, 0, "vm", "4"), 4, ""),
        (
            sbatch(4),
            0,
            "Slurm has a place for 4 tasks, and this process is the only one: srun before the",
        ),
        (sbatch(1), 0, ""),
        (mpich(0, 2, 0, 2), 4, "2 of 4 GPUs are idle: MPI started 2 processes on this node."),
        (prefixed("HOROVOD", 0, 2, 0, 2), 4, "GPUs are idle: Horovod started 2 processes on"),
        (deepspeed(0, 8, 0, 4, 2, ADDRESS), 4, ""),
        (deepspeed(0, 4, 0, 2, 2, ADDRESS), 4, "2 of 4 GPUs are idle: DeepSpeed started 2 proces"),
        (
            {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "a"},
            4,
            "this process runs as that rank and starts no other processes.",
        ),
        (
            {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "a"},
            4,
            "3 of 4 GPUs are idle: the launcher started",
        ),
    ],
)
def test_idle_gpus_and_tasks_are_reported(
    environment: Mapping[str, str], num_gpus: int, warning: str
) -> None:
    part = decide(environment, num_gpus)
    assert isinstance(part, Worker)
    assert warning in part.warning
    assert bool(warning) == bool(part.warning)


@pytest.mark.parametrize(
    ("environment", "num_gpus", "message"),
    [
        (
            {"PMI_RANK": "2", "PMI_SIZE": "4"},
            0,
            "PMI_SIZE is 4: a launcher of MPI has started this process",
        ),
        ({"PMIX_RANK": "1"}, 4, "PMIX_RANK is 1: a launcher of MPI"),
        (
            {"PMIX_RANK": "2", "JSM_NAMESPACE_RANK": "2", "JSM_NAMESPACE_SIZE": "4"},
            4,
            "JSM_NAMESPACE_SIZE is 4: a launcher of MPI",
        ),
        (
            prefixed("MV2_COMM_WORLD", 0, 2, 0, 2),
            0,
            "MV2_COMM_WORLD_SIZE is 2: a launcher of MPI has started this process, in a way from"
            " which this program cannot tell how many run on this node. Start the program with"
            " torchrun, srun, or mpiexec of Open MPI or MPICH.",
        ),
        # MVAPICH's daemons are tasks of Slurm: one for all processes of a node.
        (
            srun(1, 2, 0, "gpu[1-2]", "1(x2)", node=1) | prefixed("MV2_COMM_WORLD", 5, 8, 1, 4),
            4,
            "MV2_COMM_WORLD_SIZE is 8: a launcher of MPI",
        ),
        (prefixed("PMI", 1, 2, 1, 2), 2, "PMI_SIZE is 2: a launcher of MPI"),
        ({"PMI_RANK": "2"}, 0, "PMI_RANK is 2: a launcher of MPI"),
        ({"OMPI_COMM_WORLD_SIZE": "2"}, 0, "OMPI_COMM_WORLD_SIZE is 2: a launcher of MPI"),
        ({"JSM_NAMESPACE_RANK": "1"}, 0, "JSM_NAMESPACE_RANK is 1: a launcher of MPI"),
        (
            srun(0, 1, 0, "vm", "1", PMI_RANK="2", PMI_SIZE="4"),
            0,
            "PMI_SIZE is 4: a launcher of MPI",
        ),
        (mpich(1, 2, 0, 1), 0, "none of AZ_BATCH_MASTER_NODE"),
        (
            {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_NNODES": "2"},
            0,
            "that should say how many run on this node and where the first one runs are missing",
        ),
        (
            srun(2, 4, 2, "vm", "4"),
            2,
            "The process count per node, 4, is larger than the processing units",
        ),
        (
            pytorch_job(0, 2, "1") | {"PET_NNODES": "1:4"},
            0,
            "PET_NNODES is 1:4: the number of pods may change, and a training needs a fixed one."
            " Remove `elasticPolicy` from the PyTorchJob; elsewhere, set PET_NNODES to the number",
        ),
        ({"PET_NNODES": "2"}, 0, "PET_NNODES is 2, and PET_NODE_RANK is missing. Set it to"),
        (pytorch_job(2, 2, "1"), 0, "RANK 2 is not from 0 to WORLD_SIZE - 1 = 1."),
    ],
)
def test_a_launch_that_is_not_understood_is_refused(
    environment: Mapping[str, str], num_gpus: int, message: str
) -> None:
    with pytest.raises(LaunchError) as refused:
        decide(environment, num_gpus)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
            "HOROVOD_SIZE is 2: Horovod has started this process, and HOROVOD_RANK, HOROVOD_SIZE,"
            " HOROVOD_LOCAL_RANK and HOROVOD_LOCAL_SIZE are not all set. Start the program with"
            " `horovodrun -np N` or torchrun.",
        ),
        (
            prefixed("HOROVOD", 1, 4, 0, 2),
            "Horovod has started 4 processes on several nodes, and none of AZ_BATCH_MASTER_NODE",
        ),
        (
            prefixed("HOROVOD", 0, 2, 0, 2) | {"HOROVOD_ELASTIC": "1"},
            "HOROVOD_ELASTIC is 1: the number of processes may change, and a training needs a fixed"
            " one. Start them with `horovodrun -np N`, without --min-np and --max-np.",
        ),
        (
            batch_ai(1),
            "AZ_BATCHAI_TASK_INDEX is 1: this process is one of several, and nothing says of how"
            " many. Set WORLD_SIZE to the number of all processes",
        ),
        (batch_ai(0), "AZ_BATCHAI_PYTORCH_INIT_METHOD is tcp://10.0.0.4:6000: this process is"),
        (
            batch_ai(0, "file:///mnt/share/group") | {"WORLD_SIZE": "2"},
            "AZ_BATCHAI_PYTORCH_INIT_METHOD is 'file:///mnt/share/group', expected an address such"
            " as tcp://10.0.0.4:6000. Set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead.",
        ),
        (
            {"LOCAL_RANK": "1"},
            "LOCAL_RANK is 1: this process is one of several, and without RANK and WORLD_SIZE it"
            " cannot tell which. Start the program with torchrun, or set RANK, WORLD_SIZE,"
            " MASTER_ADDR and MASTER_PORT; if it is alone, unset the variable.",
        ),
        ({"LOCAL_WORLD_SIZE": "4"}, "LOCAL_WORLD_SIZE is 4: this process is one of several"),
        ({"CROSS_SIZE": "2"}, "CROSS_SIZE is 2: this process is one of several"),
        ({"NODE_RANK": "1"}, "NODE_RANK is 1: this process is one of several"),
        ({"PET_NODE_RANK": "1"}, "PET_NODE_RANK is 1: this process is one of several"),
        (prefixed("FLUX_JOB", 0, 2, 0, 2), "FLUX_JOB_SIZE is 2: this process is one of several"),
        (
            {"SLURM_PROCID": "2", "SLURM_STEP_ID": "0"},
            "SLURM_PROCID is 2: this process is one of several",
        ),
    ],
)
def test_a_process_that_sees_others_and_cannot_place_itself_is_refused(
    environment: Mapping[str, str], message: str
) -> None:
    for num_gpus in (0, 4):
        with pytest.raises(LaunchError) as refused:
            decide(environment, num_gpus)
        assert message in str(refused.value)


@pytest.mark.parametrize(
    "environment",
    [
        prefixed("HOROVOD", 0, 1, 0, 1) | {"HOROVOD_ELASTIC": "0"},
        {"AZ_BATCHAI_TASK_INDEX": "0"},
        {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "0", "CROSS_SIZE": "1"},
    ],
)
def test_the_signs_of_an_only_process_are_not_of_others(environment: Mapping[str, str]) -> None:
    part = decide(environment, 0)
    assert isinstance(part, Worker)
    assert part.size == 1


def test_one_of_the_processes_that_are_refused_reports_it() -> None:
    assert [rank_of(prefixed("MV2_COMM_WORLD", rank, 2, rank, 2)) for rank in range(2)] == [0, 1]
    assert [rank_of(prefixed("HOROVOD", rank, 2, rank, 2)) for rank in range(2)] == [0, 1]
    assert [rank_of(batch_ai(rank)) for rank in range(2)] == [0, 1]
    assert [rank_of(prefixed("JSM_NAMESPACE", rank, 2, rank, 2)) for rank in range(2)] == [0, 1]
