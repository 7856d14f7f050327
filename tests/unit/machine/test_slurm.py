"""Where the processes of a step of Slurm meet."""

import pytest

from train_pytorch_model.machine import slurm

DEFAULT_PORT = 6105


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("vm", "vm"),
        ("a,b", "a"),
        ("gpu[01-04,07],login", "gpu01"),
        ("rack[2,5]-gpu[03-04]", "rack2-gpu03"),
        ("gpu-[1-2].cluster,x", "gpu-1.cluster"),
        ("", ""),
    ],
)
def test_the_first_of_slurms_nodes_is_where_ranks_meet(nodes: str, first: str) -> None:
    assert slurm.first_host({"SLURM_JOB_NODELIST": nodes}) == first


def test_jobs_on_one_node_meet_at_different_ports() -> None:
    steps = [
        {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step)} for job in (7, 8) for step in (0, 1)
    ]
    assert len({slurm.port(step, DEFAULT_PORT) for step in steps}) == 4
    assert slurm.port({}, DEFAULT_PORT) == DEFAULT_PORT
