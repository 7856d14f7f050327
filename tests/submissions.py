"""A valid submission, for tests to modify."""

from typing import Any

from train_pytorch_model.azure.submission import Submission

CLOUD = "azureml:flowers:1"


def submission(**changes: Any) -> Submission:
    """A valid submission with some options replaced."""
    data = dict.fromkeys(("untrained_model", "training_dataset", "validation_dataset"), CLOUD)
    return Submission(**(data | changes))
