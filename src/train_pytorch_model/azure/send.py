"""Send a job: check it with the service, create what is missing, upload, submit."""

from pathlib import Path

from train_pytorch_model.azure.cluster import Cluster
from train_pytorch_model.azure.job_folder import (
    ENVIRONMENT_FILE,
    JOB,
    component_files,
    components_version,
)
from train_pytorch_model.azure.rules import problems_of_processes
from train_pytorch_model.azure.service import Job, Service, load_valid_job
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.config.wording import bulleted, parameter
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.machine.console import logger


def send(submission: Submission, folder: Path, service: Service) -> Job:
    """Check all, create what is missing, upload, submit.

    Raises `ParameterError`, `ServiceError`.
    """
    job = load_valid_job(folder / JOB)
    _provide_nodes(submission, service)
    register_assets(submission, folder, service)
    logger.info("Uploading what the workspace does not have yet")
    sent = service.submit(job)
    logger.info(f"Job {sent.name}: {sent.studio_url}")
    return sent


def register_assets(submission: Submission, folder: Path, service: Service) -> None:
    """Register the project's environment, and its components if the submission asks for that."""
    if submission.has_own_environment:
        service.register_environment(folder / ENVIRONMENT_FILE)
    if submission.register_components:
        service.register_components(component_files(folder), components_version(folder))


def _provide_nodes(submission: Submission, service: Service) -> None:
    """Create the cluster unless it exists; raise `ParameterError` for nodes that do not fit."""
    cluster = None
    if not submission.is_serverless:
        cluster = service.find_cluster(submission.compute)
    if cluster is not None:
        _check_cluster(cluster, submission, service)
        return
    _check_new_nodes(submission, service)
    if not submission.is_serverless:
        nodes = f"0 to {submission.new_max_nodes} nodes of {submission.new_vm_size}"
        logger.info(f"Creating the cluster {submission.compute}: {nodes}")
        service.create_cluster(submission)


def _check_new_nodes(submission: Submission, service: Service) -> None:
    """Raise `ParameterError` if the nodes of a new cluster, or serverless ones, do not fit."""
    vm_size = submission.new_vm_size
    gpus_by_vm_size = service.gpus_by_vm_size()
    gpus = gpus_by_vm_size.get(vm_size.lower())
    if gpus is None:
        with_gpus = sorted(name for name, count in gpus_by_vm_size.items() if count)
        raise ParameterError(
            f"{parameter('vm_size')} {vm_size} is not offered in the region of the workspace. Sizes"
            f" with GPUs there:{bulleted(with_gpus)}"
        )
    problems = list(problems_of_processes(submission, vm_size, gpus))
    if problems:
        raise ParameterError("\n".join(problems))


def _check_cluster(cluster: Cluster, submission: Submission, service: Service) -> None:
    """Raise `ParameterError` if the cluster does not fit what is asked for."""
    gpus = None
    if submission.process_count_per_instance > 1 and cluster.vm_size:  # one process fits any node
        gpus = service.gpus_by_vm_size().get(cluster.vm_size.lower())
    if submission.max_nodes not in (None, cluster.max_nodes):
        logger.warning(
            f"{cluster.name} exists and has at most {cluster.max_nodes} nodes;"
            f" {parameter('max_nodes')} is ignored."
        )
    problems = list(cluster.problems(submission, gpus))
    if problems:
        raise ParameterError("\n".join(problems))
