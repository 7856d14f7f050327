"""Register the project's components in a workspace, for the designer."""

import tempfile
from pathlib import Path

from train_pytorch_model.azure.job_folder import copy_project
from train_pytorch_model.azure.send import register_assets
from train_pytorch_model.azure.service import Service
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.azure.workspace import Workspace


def register_components(submission: Submission, workspace: Workspace) -> None:
    """Register the components that have changed, without a job.

    Raises `ParameterError`, `ServiceError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy_project(submission, Path(folder))
        register_assets(submission, Path(folder), Service(workspace))
