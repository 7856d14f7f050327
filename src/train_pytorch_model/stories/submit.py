"""Submit a training to Azure ML: send the job, watch it, and download its model."""

import tempfile
from pathlib import Path

from train_pytorch_model.azure import trained_model
from train_pytorch_model.azure.job_folder import MODEL_OUTPUT, write_job_folder
from train_pytorch_model.azure.send import send
from train_pytorch_model.azure.service import Job, Service
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.azure.watch import follow
from train_pytorch_model.azure.workspace import Workspace
from train_pytorch_model.errors import ServiceError
from train_pytorch_model.machine.console import logger


def submit(
    submission: Submission, workspace: Workspace, limit_min: int | None, target: Path | None
) -> None:
    """Send the job, watch it, for at most so many minutes, and download the trained model.

    Raises `ParameterError`, `ServiceError`, `JobFailedError`, `OutputDirectoryError`.
    """
    service, job = start(submission, workspace)
    if limit_min == 0:
        _show_continuing(job, workspace)
        return
    try:
        follow(service, job, limit_min)
    except (KeyboardInterrupt, SystemExit, ServiceError):
        _show_continuing(job, workspace)
        raise

    if submission.register:
        logger.info(f"The trained model is registered as {submission.register}")
    if target:
        try:
            trained_model.download(service, job, target, "download")
        except BaseException:  # the trained model is still in Azure ML: say how to get it
            state = "is complete. Its model can still be downloaded:"
            _show_commands(job, workspace, state, "download")
            raise
    if submission.register:
        trained_model.describe(service, job, submission.register, target)


def start(submission: Submission, workspace: Workspace) -> tuple[Service, Job]:
    """Send the job; return it, and where it is. Raises `ParameterError`, `ServiceError`."""
    with tempfile.TemporaryDirectory() as folder:
        write_job_folder(submission, Path(folder))
        service = Service(workspace)
        return service, send(submission, Path(folder), service)


def _show_continuing(job: Job, workspace: Workspace) -> None:
    state = f"continues: {job.studio_url}"
    _show_commands(job, workspace, state, "stream", "cancel", "download")


def _show_commands(job: Job, workspace: Workspace, state: str, *verbs: str) -> None:
    logger.info(f"\nJob {job.name} {state}")
    for verb in verbs:
        output = f" --output-name {MODEL_OUTPUT}" if verb == "download" else ""
        logger.info(f"  az ml job {verb} --name {job.name}{output} {workspace.flags()}")
