"""Whether a cluster that exists fits what is asked for."""

from typing import Any

import pytest

from train_pytorch_model.azure.cluster import Cluster
from train_pytorch_model.azure.submission import Submission

T4 = "Standard_NC4as_T4_v3"
FOUR_T4 = "Standard_NC64as_T4_v3"


@pytest.mark.parametrize(
    ("cluster", "nodes", "gpus", "message"),
    [
        (
            Cluster("k8s", "kubernetes"),
            {"instance_count": 2},
            None,
            "Several nodes need an AmlCompute cluster: k8s is of type kubernetes, and"
            " --instance-count is 2.",
        ),
        (
            Cluster("gpu", "amlcompute", T4, 2),
            {"instance_count": 3},
            1,
            "Node count should be at most the cluster's maximum: --instance-count is 3, and gpu has"
            " at most 2"
            " nodes. Raise it with `az ml compute update --name gpu --max-instances 3`.",
        ),
        (
            Cluster("gpu", "amlcompute", T4, 2),
            {"vm_size": FOUR_T4},
            1,
            f"gpu exists, and its nodes are {T4}: --vm-size {FOUR_T4} does not fit. Leave it out,"
            " or name"
            " another cluster.",
        ),
        (
            Cluster("gpu", "amlcompute", T4, 2),
            {"low_priority": True},
            1,
            "gpu exists, and its nodes are not of low priority: --low-priority does not fit. Leave"
            " it out, or"
            " name another cluster.",
        ),
        (
            Cluster("gpu", "amlcompute", FOUR_T4, 2),
            {"process_count_per_instance": 5},
            4,
            "Process count per node should be at most the GPUs of a node:"
            " --process-count-per-instance is 5,"
            f" and {FOUR_T4} has 4.",
        ),
    ],
)
def test_requests_beyond_a_cluster_are_reported(
    cluster: Cluster, nodes: dict[str, Any], gpus: int | None, message: str
) -> None:
    assert list(cluster.problems(Submission(**nodes), gpus)) == [message]


@pytest.mark.parametrize(
    ("cluster", "nodes", "gpus"),
    [
        (Cluster("gpu", "amlcompute", T4, 2), {"instance_count": 2, "vm_size": T4.upper()}, 1),
        (Cluster("gpu", "amlcompute", FOUR_T4, 1), {"process_count_per_instance": 4}, 4),
        (Cluster("cpu", "amlcompute", "Standard_D2_v2", 1), {"process_count_per_instance": 1}, 0),
        (Cluster("k8s", "kubernetes"), {"process_count_per_instance": 4}, None),
    ],
)
def test_requests_within_a_cluster_pass(
    cluster: Cluster, nodes: dict[str, Any], gpus: int | None
) -> None:
    assert list(cluster.problems(Submission(**nodes), gpus)) == []
