"""What all tests of `submit` share: the verb, its usual options, and where they can run."""

from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.programs.azure_service import SECRET
from tests.programs.program import Ended, run_program

DATA = ("--training-dataset", "azureml:flowers:1", "--validation-dataset", "azureml:flowers-validation:2")
MODEL = ("--untrained-model", "azureml://datastores/models/paths/resnet50")
ON_A_WORKSTATION = [
    # The client's own, on import and later; `run_program` makes errors of ours.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not any(distribution.name == "azure-ai-ml" for distribution in distributions()),
        reason="azure-ai-ml is of workstations, and not in the environment of jobs",
    ),
]

T4, FOUR_T4 = "Standard_NC4as_T4_v3", "Standard_NC64as_T4_v3"


def submit(*options: str | Path) -> Ended:
    """The verb; whatever happens, no signature is shown."""
    ended = run_program("submit", *options)
    assert SECRET not in ended.stdout + ended.stderr
    return ended
