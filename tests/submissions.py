"""A valid submission, for tests to modify."""

from typing import Any

from train_pytorch_model.submission.cluster import Nodes
from train_pytorch_model.submission.request import Reference, Submission

CLOUD = Reference("azureml:flowers:1")


def submission(**changes: Any) -> Submission:
    """A valid submission with some fields replaced."""
    values: dict[str, Any] = {
        "untrained_model": CLOUD,
        "training_dataset": CLOUD,
        "validation_dataset": CLOUD,
        "nodes": Nodes(cluster="gpu-cluster"),
    }
    return Submission(**(values | changes))
