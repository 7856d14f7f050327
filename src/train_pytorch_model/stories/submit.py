"""Submit a training to Azure ML: send the job, watch it, and download its model."""

import tempfile
from pathlib import Path

from train_pytorch_model.azure import trained_model
from train_pytorch_model.azure.client_errors import ServiceError
from train_pytorch_model.azure.job_folder import MODEL_OUTPUT, write_job_folder
from train_pytorch_model.azure.send import send
from train_pytorch_model.azure.service import Job, Service
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.azure.watch import follow
from train_pytorch_model.azure.workspace import Workspace
from train_pytorch_model.machine.console import logger


def submit(submission: Submission, workspace: Workspace) -> None:
    """Send the job, watch it, and download the trained model.

    Raises `ParameterError`, `ServiceError`, `JobFailedError`, `OutputDirectoryError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        write_job_folder(submission, Path(folder))
        service = Service(workspace)
        job = send(submission, Path(folder), service)

    if submission.wait_limit == 0:
        _show_continuing(job, workspace)
        return
    try:
        follow(service, job, submission.wait_limit)
    except (KeyboardInterrupt, SystemExit, ServiceError):
        _show_continuing(job, workspace)
        raise

    if submission.register:
        logger.info(f"The trained model is registered as {submission.register}")
    if submission.download:
        try:
            trained_model.download(service, job, submission.download)
        except BaseException:  # the trained model is still in Azure ML: say how to get it
            state = "is complete. Its model can still be downloaded:"
            _show_commands(job, workspace, state, "download")
            raise
    if submission.register:
        trained_model.describe(service, job, submission.register, submission.download)


def _show_continuing(job: Job, workspace: Workspace) -> None:
    state = f"continues: {job.studio_url}"
    _show_commands(job, workspace, state, "stream", "cancel", "download")


def _show_commands(job: Job, workspace: Workspace, state: str, *verbs: str) -> None:
    logger.info(f"\nJob {job.name} {state}")
    for verb in verbs:
        output = f" --output-name {MODEL_OUTPUT}" if verb == "download" else ""
        logger.info(f"  az ml job {verb} --name {job.name}{output} {workspace.flags()}")
