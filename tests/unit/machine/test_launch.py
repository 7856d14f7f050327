"""How this process was launched: a table of environments, and the role that each implies."""

from collections.abc import Callable, Mapping

import pytest
from tests.azure_job import mpi_job, pytorch_job
from tests.launchers import ADDRESS, assert_role, azure, mpi, torchrun

from train_pytorch_model.machine.launch import DEFAULT_PORT, Agent, Worker, decide


@pytest.mark.parametrize(
    ("environment", "num_gpus", "expected"),
    [
        pytest.param({}, 0, Worker(), id="alone without a GPU"),
        pytest.param({}, 1, Worker(), id="alone with one GPU"),
        pytest.param({}, 4, Agent(4), id="alone with four GPUs"),
        pytest.param(
            {"AZUREML_NODE_COUNT": "1"}, 4, Agent(4), id="an Azure job without distribution"
        ),
        pytest.param(
            torchrun(3, 4, 3, 4), 4, Worker(3, 4, 3, 4, ADDRESS, 29400), id="torchrun, one node"
        ),
        pytest.param(
            torchrun(6, 8, 2, 4), 4, Worker(6, 8, 2, 4, ADDRESS, 29400), id="torchrun, two nodes"
        ),
        pytest.param(
            torchrun(1, 2, 1, 2), 0, Worker(1, 2, 1, 2, ADDRESS, 29400), id="torchrun, no GPU"
        ),
        pytest.param(
            torchrun(1, 2, 1, 2, AZUREML_NODE_COUNT="2"),
            4,
            Worker(1, 2, 1, 2, ADDRESS, 29400),
            id="torchrun within an Azure job starts no more processes",
        ),
        pytest.param(
            azure(0, 1, 1, LOCAL_RANK="0", NODE_RANK="0"),
            4,
            Agent(4, 1, 0, ADDRESS, 6105),
            id="Azure, P=1, one node of four GPUs",
        ),
        pytest.param(
            azure(1, 2, 2, LOCAL_RANK="0", NODE_RANK="1"),
            4,
            Agent(4, 2, 1, ADDRESS, 6105),
            id="Azure, P=1, the second of two nodes of four GPUs",
        ),
        pytest.param(
            azure(1, 2, 2),
            4,
            Agent(4, 2, 1, ADDRESS, 6105),
            id="Azure, P=1, NODE_RANK follows from RANK",
        ),
        pytest.param(
            azure(2, 4, 1, LOCAL_RANK="2"),
            4,
            Worker(2, 4, 2, 4, ADDRESS, 6105),
            id="Azure, P=4, one node",
        ),
        pytest.param(
            azure(6, 8, 2, LOCAL_RANK="2", NODE_RANK="1"),
            4,
            Worker(6, 8, 2, 4, ADDRESS, 6105),
            id="Azure, P=4, two nodes",
        ),
        pytest.param(
            azure(6, 8, 2),
            4,
            Worker(6, 8, 2, 4, ADDRESS, 6105),
            id="Azure, P=4, without LOCAL_RANK",
        ),
        pytest.param(
            azure(1, 4, 2, LOCAL_RANK="1"),
            4,
            Worker(1, 4, 1, 2, ADDRESS, 6105),
            id="Azure, P=2 of four GPUs",
        ),
        pytest.param(
            azure(1, 2, 2, LOCAL_RANK="0"),
            0,
            Worker(1, 2, 0, 1, ADDRESS, 6105),
            id="Azure, P=1, CPU nodes",
        ),
        pytest.param(
            azure(1, 2, 2, LOCAL_RANK="0"),
            1,
            Worker(1, 2, 0, 1, ADDRESS, 6105),
            id="Azure, P=1 of one GPU",
        ),
        pytest.param(
            {"RANK": "1", "WORLD_SIZE": "2"},
            2,
            Worker(1, 2, 1, 2, "127.0.0.1", DEFAULT_PORT),
            id="another launcher on this machine",
        ),
        pytest.param(
            {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": ADDRESS, "MASTER_PORT": "1234"},
            1,
            Worker(1, 2, 0, 1, ADDRESS, 1234),
            id="another launcher on two machines",
        ),
        pytest.param(
            mpi(2, 4, 2, 4, AZ_BATCHAI_MPI_MASTER_NODE=ADDRESS),
            4,
            Worker(2, 4, 2, 4, ADDRESS, DEFAULT_PORT),
            id="MPI, one node of Azure",
        ),
        pytest.param(
            mpi(5, 8, 1, 4, AZ_BATCH_MASTER_NODE=f"{ADDRESS}:6000"),
            4,
            Worker(5, 8, 1, 4, ADDRESS, 6000),
            id="MPI, two nodes of Azure",
        ),
        pytest.param(
            mpi(
                5,
                8,
                1,
                4,
                AZ_BATCH_MASTER_NODE=f"{ADDRESS}:6000",
                AZ_BATCHAI_MPI_MASTER_NODE="localhost",
            ),
            4,
            Worker(5, 8, 1, 4, ADDRESS, 6000),
            id="MPI, AZ_BATCH_MASTER_NODE before AZ_BATCHAI_MPI_MASTER_NODE",
        ),
        pytest.param(
            mpi(5, 8, 1, 4, AZ_BATCH_MASTER_NODE=f"{ADDRESS}:6000", MASTER_PORT="1234"),
            4,
            Worker(5, 8, 1, 4, ADDRESS, 1234),
            id="MPI, a port of the user's own",
        ),
        pytest.param(
            mpi(1, 2, 0, 1, MASTER_ADDR=ADDRESS, MASTER_PORT="1234"),
            1,
            Worker(1, 2, 0, 1, ADDRESS, 1234),
            id="MPI, two nodes elsewhere",
        ),
        pytest.param(
            mpi(1, 2, 1, 2),
            0,
            Worker(1, 2, 1, 2, "127.0.0.1", DEFAULT_PORT),
            id="MPI, this machine, no GPU",
        ),
        pytest.param(
            mpi(0, 1, 0, 1),
            4,
            Worker(0, 1, 0, 1, "127.0.0.1", DEFAULT_PORT),
            id="MPI is never an agent",
        ),
    ],
)
def test_the_environment_decides_the_role_of_a_process(
    environment: Mapping[str, str], num_gpus: int, expected: Worker | Agent
) -> None:
    assert_role(environment, num_gpus, expected)


@pytest.mark.parametrize("job", [pytorch_job, mpi_job])
@pytest.mark.parametrize(("nodes", "per_node"), [(1, 1), (1, 4), (2, 4), (3, 2)])
def test_the_processes_of_an_azure_job_form_one_world(
    job: Callable[[int, int, str], list[dict[str, str]]], nodes: int, per_node: int
) -> None:
    parts = [decide(environment, per_node) for environment in job(nodes, per_node, ADDRESS)]
    workers = [part for part in parts if isinstance(part, Worker)]
    size = nodes * per_node
    assert [(worker.rank, worker.size) for worker in workers] == [
        (rank, size) for rank in range(size)
    ]
    assert [(worker.local_rank, worker.local_size) for worker in workers] == [
        (rank % per_node, per_node) for rank in range(size)
    ]
    assert len({(worker.master_addr, worker.master_port) for worker in workers}) == 1


@pytest.mark.parametrize(
    ("environment", "num_gpus", "warning"),
    [
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": "2"},
            0,
            "RANK and WORLD_SIZE are set, but not by torchrun or Azure ML: this process runs as"
            " that rank and"
            " starts no other processes.",
            id="another launcher",
        ),
        pytest.param(
            mpi(0, 2, 0, 1, AZ_BATCH_MASTER_NODE=f"{ADDRESS}:6000"),
            4,
            "3 of 4 GPUs are idle: MPI started 1 process on this node.",
            id="MPI with fewer processes than GPUs",
        ),
        pytest.param(mpi(0, 4, 0, 4), 4, "", id="MPI with a process for each GPU"),
        pytest.param(mpi(0, 4, 0, 4), 0, "", id="MPI without GPUs"),
        pytest.param(torchrun(0, 2, 0, 2), 4, "", id="torchrun with fewer processes than GPUs"),
        pytest.param(azure(0, 4, 1, LOCAL_RANK="0"), 4, "", id="Azure, P=4"),
    ],
)
def test_a_worker_warns_about_a_suspicious_launch(
    environment: Mapping[str, str], num_gpus: int, warning: str
) -> None:
    part = decide(environment, num_gpus)
    assert isinstance(part, Worker)
    assert part.warning == warning


@pytest.mark.parametrize(
    ("environment", "num_gpus", "note"),
    [
        ({}, 1, ""),
        ({}, 4, "4 GPUs, and no launcher has started a process for each."),
        (torchrun(3, 4, 3, 4), 4, "Process 3 of 4, started by torchrun."),
        (
            mpi(5, 8, 1, 4, AZ_BATCH_MASTER_NODE=ADDRESS),
            4,
            "MPI has started 8 processes, 4 on this node.",
        ),
        (
            azure(0, 2, 2),
            4,
            "Azure ML has started one process per node, on 2 nodes; this one has 4 GPUs and gets a"
            " process"
            " for each.",
        ),
        (
            azure(0, 8, 2),
            4,
            "Azure ML has started 4 processes per node, on 2 nodes; no more are started.",
        ),
    ],
)
def test_a_process_reports_how_it_was_launched(
    environment: Mapping[str, str], num_gpus: int, note: str
) -> None:
    assert decide(environment, num_gpus).note == note


@pytest.mark.parametrize(
    ("agent", "line"),
    [
        (
            Agent(4),
            "torchrun --standalone --nproc-per-node=4 -m train_pytorch_model train --epochs 5"
            " --trained-model 'my model'",
        ),
        (
            Agent(8, 2, 1, ADDRESS, 6105),
            "torchrun --nnodes=2 --node-rank=1 --master-addr=10.0.0.4 --master-port=6105"
            " --nproc-per-node=8"
            " -m train_pytorch_model train --epochs 5 --trained-model 'my model'",
        ),
    ],
)
def test_an_agent_shows_the_equivalent_torchrun_command(agent: Agent, line: str) -> None:
    assert agent.torchrun_line(["train", "--epochs", "5", "--trained-model", "my model"]) == line


def test_a_worker_sets_the_variables_that_torch_reads() -> None:
    part = decide(mpi(5, 8, 1, 4, AZ_BATCH_MASTER_NODE=f"{ADDRESS}:6000"), 4)
    assert isinstance(part, Worker)
    assert part.variables() == {
        "RANK": "5",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": "6000",
    }
