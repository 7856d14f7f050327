"""Shared by all tests of `submit`: the verb, its usual options, and where the tests can run."""

from importlib.metadata import distributions
from pathlib import Path

import pytest

from tests.programs.azure_service import SECRET, AzureService, Call
from tests.programs.program import Ended, run_program

DATA = (
    "--training-dataset",
    "azureml:flowers:1",
    "--validation-dataset",
    "azureml:flowers-validation:2",
)
MODEL = ("--untrained-model", "azureml://datastores/models/paths/resnet50")
ON_A_WORKSTATION = [
    # The client's own warnings, on import and later; `run_program` turns ours into errors.
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not any(distribution.name == "azure-ai-ml" for distribution in distributions()),
        reason="azure-ai-ml is for workstations, and not installed in the environment of jobs",
    ),
]

T4, FOUR_T4 = "Standard_NC4as_T4_v3", "Standard_NC64as_T4_v3"


def submit(*options: str | Path) -> Ended:
    """Run `submit`, and check that no signature is shown."""
    ended = run_program("submit", *options)
    assert SECRET not in ended.stdout + ended.stderr
    return ended


def give_jobs_the_model(service: AzureService, root: Path) -> None:
    """Make every job of the service write this model directory."""

    def write(call: Call) -> None:
        if call.method == "PUT" and "/jobs/" in call.path:
            output = f"azureml/{call.path.rpartition('/')[2]}/trained_model"
            for path in root.rglob("*"):
                if path.is_file():
                    name = path.relative_to(root).as_posix()
                    service.blobs[f"{output}/{name}"] = path.read_bytes()

    service.fault = write
