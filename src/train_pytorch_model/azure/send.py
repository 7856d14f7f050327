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
from train_pytorch_model.azure.submission import SERVERLESS, Submission
from train_pytorch_model.config.wording import assignment, bulleted, flag, parameter, worded
from train_pytorch_model.errors import ParameterError, ServiceError
from train_pytorch_model.machine.console import logger

RETIRED = "Azure has retired low-priority nodes of clusters since 2026-03-31, region by region"


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
        _create_cluster(submission, service)


def _create_cluster(submission: Submission, service: Service) -> None:
    """Create the cluster; a refusal of its low priority says what there is instead."""
    try:
        service.create_cluster(submission)
    except ServiceError as error:
        if error.is_transient or not submission.low_priority:
            raise
        raise ServiceError(f"{error} {_instead_of_low_priority()}") from error


def _instead_of_low_priority() -> str:
    """Return why low priority may be refused, and what to ask for."""
    serverless = assignment("compute", SERVERLESS)
    spot = worded(flag("low_priority"), "`low_priority=True`")
    return f"{RETIRED}: {serverless} with {spot} asks for nodes of the Spot tier instead."


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
    if cluster.is_low_priority:
        logger.warning(f"{cluster.name} has low-priority nodes. {_instead_of_low_priority()}")
    problems = list(cluster.problems(submission, gpus))
    if problems:
        raise ParameterError("\n".join(problems))
