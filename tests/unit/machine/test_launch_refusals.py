"""Launches that cannot work: a table of environments, and the error for each."""

import re
from collections.abc import Mapping

import pytest
from tests.launchers import ADDRESS, azure, mpi, torchrun

from train_pytorch_model.machine.launch import LaunchError, decide


@pytest.mark.parametrize(
    ("environment", "num_gpus", "message"),
    [
        pytest.param(
            {"AZUREML_NODE_COUNT": "2"},
            0,
            "AZUREML_NODE_COUNT is 2, but RANK and WORLD_SIZE are not set: each node would train"
            " alone and"
            " write the same output. Add `distribution: {type: pytorch}` to the job.",
            id="two nodes without distribution",
        ),
        pytest.param(
            {"AZUREML_NODE_COUNT": "2", "RANK": "0"},
            4,
            "AZUREML_NODE_COUNT is 2, but RANK and WORLD_SIZE are not set: each node would train"
            " alone and"
            " write the same output. Add `distribution: {type: pytorch}` to the job.",
            id="two nodes, RANK alone",
        ),
        pytest.param(
            {"RANK": "0"},
            4,
            "Only one of RANK and WORLD_SIZE is set. Set both or neither.",
            id="RANK alone",
        ),
        pytest.param(
            {"WORLD_SIZE": "2"},
            0,
            "Only one of RANK and WORLD_SIZE is set. Set both or neither.",
            id="WORLD_SIZE alone",
        ),
        pytest.param(
            azure(0, 3, 2),
            0,
            "WORLD_SIZE 3 is not a multiple of AZUREML_NODE_COUNT 2: every node needs the same"
            " number of"
            " processes.",
            id="nodes of different sizes",
        ),
        pytest.param(
            azure(0, 2, 0),
            0,
            "WORLD_SIZE 2 is not a multiple of AZUREML_NODE_COUNT 0: every node needs the same"
            " number of"
            " processes.",
            id="no node",
        ),
        pytest.param(
            mpi(0, 8, 0, 4),
            4,
            "MPI has started 8 processes on several nodes, and none of AZ_BATCH_MASTER_NODE,"
            " AZ_BATCHAI_MPI_MASTER_NODE and MASTER_ADDR says where they meet. Set MASTER_ADDR to"
            " the address"
            " of the first node.",
            id="MPI on two nodes that do not know where to meet",
        ),
        pytest.param(
            torchrun(1, 4, 1, 4),
            2,
            "The process count per node, 4, is larger than the processing units: this node has 2"
            " GPUs. Start"
            " at most one process per GPU.",
            id="torchrun, more processes than GPUs",
        ),
        pytest.param(
            azure(5, 8, 2, LOCAL_RANK="1"),
            2,
            "The process count per node, 4, is larger than the processing units: this node has 2"
            " GPUs. Start"
            " at most one process per GPU.",
            id="Azure, more processes than GPUs",
        ),
        pytest.param(
            mpi(0, 4, 0, 4),
            2,
            "The process count per node, 4, is larger than the processing units: this node has 2"
            " GPUs. Start"
            " at most one process per GPU.",
            id="MPI, more processes than GPUs",
        ),
        pytest.param(
            {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": ADDRESS},
            1,
            "The process count per node, 2, is larger than the processing units: this node has 1"
            " GPUs. Start"
            " at most one process per GPU.",
            id="another launcher, more processes than GPUs",
        ),
        pytest.param(
            torchrun(4, 4, 0, 4),
            4,
            "RANK 4 is not from 0 to WORLD_SIZE - 1 = 3.",
            id="a rank beyond the last",
        ),
        pytest.param(
            {"RANK": "-1", "WORLD_SIZE": "2"},
            0,
            "RANK -1 is not from 0 to WORLD_SIZE - 1 = 1.",
            id="a rank before the first",
        ),
        pytest.param(
            {"RANK": "first", "WORLD_SIZE": "2"},
            0,
            "RANK is 'first', expected a whole number.",
            id="RANK is a word",
        ),
        pytest.param(
            {"RANK": "0", "WORLD_SIZE": ""},
            0,
            "WORLD_SIZE is '', expected a whole number.",
            id="WORLD_SIZE is empty",
        ),
        pytest.param(
            azure(0, 2, 2) | {"AZUREML_NODE_COUNT": "two"},
            0,
            "AZUREML_NODE_COUNT is 'two', expected a whole number.",
            id="AZUREML_NODE_COUNT is a word",
        ),
        pytest.param(
            torchrun(0, 2, 0, 2) | {"LOCAL_RANK": "0.5"},
            0,
            "LOCAL_RANK is '0.5', expected a whole number.",
            id="LOCAL_RANK is a fraction",
        ),
        pytest.param(
            torchrun(0, 2, 0, 2) | {"MASTER_PORT": "http"},
            0,
            "MASTER_PORT is 'http', expected a whole number.",
            id="MASTER_PORT is a word",
        ),
        pytest.param(
            mpi(0, 2, 0, 2) | {"OMPI_COMM_WORLD_SIZE": "many"},
            0,
            "OMPI_COMM_WORLD_SIZE is 'many', expected a whole number.",
            id="MPI's size is a word",
        ),
    ],
)
def test_a_launch_that_cannot_work_is_refused(
    environment: Mapping[str, str], num_gpus: int, message: str
) -> None:
    with pytest.raises(LaunchError, match=f"^{re.escape(message)}$") as refusal:
        decide(environment, num_gpus)
    assert refusal.value.exit_status == 2
