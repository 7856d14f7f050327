"""Whether Azure ML runs this process, and where it collects what a job writes."""

import os
from pathlib import Path

OUTPUTS = Path("outputs")  # in the working directory of a job; Azure ML uploads it


def is_azure_job() -> bool:
    """Return whether Azure ML runs this process."""
    return "AZUREML_RUN_ID" in os.environ
