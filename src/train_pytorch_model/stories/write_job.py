"""Write a job for Azure ML to a folder, from which `az ml` can submit it."""

import shlex
from pathlib import Path

from train_pytorch_model.azure.job_folder import ENVIRONMENT_FILE, JOB, write_job_folder
from train_pytorch_model.azure.service import load_valid_job
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.formats.outputs import owning_directory
from train_pytorch_model.machine.console import logger


def write_job(submission: Submission, folder: Path) -> None:
    """Write the job to a new or empty folder, and send nothing. Raises `ServiceError`."""
    with owning_directory(folder, "dry_run"):
        write_job_folder(submission, folder)
        load_valid_job(folder / JOB)
    logger.info(f"Nothing was sent. The job is in {folder}; to submit it:")
    if not submission.is_serverless:
        tier = " --tier low_priority" if submission.low_priority else ""
        logger.info(
            f"  az ml compute create --type AmlCompute --name {submission.compute}"
            f" --size {submission.new_vm_size} --min-instances 0"
            f" --max-instances {submission.new_max_nodes}{tier}   # if it does not exist"
        )
    if submission.has_own_environment:
        file = shlex.quote(str(folder / ENVIRONMENT_FILE))
        logger.info(f"  az ml environment create --file {file}   # the same")
    logger.info(f"  az ml job create --file {shlex.quote(str(folder / JOB))}")
