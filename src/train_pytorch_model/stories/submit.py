"""Submit a training to Azure ML: cluster, job, phases and log, model."""

import shlex
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from train_pytorch_model.azure import job_folder
from train_pytorch_model.azure.job_folder import ENVIRONMENT_FILE, JOB, TRAINED_MODEL
from train_pytorch_model.azure.request import Cluster, Submission, Workspace
from train_pytorch_model.azure.service import Job, LogStream, Service, ServiceError, load_valid_job
from train_pytorch_model.config.wording import bulleted, parameter
from train_pytorch_model.errors import ParameterError, UserError
from train_pytorch_model.formats.outputs import owning_directory
from train_pytorch_model.formats.reading import META, MalformedFileError, read_yaml
from train_pytorch_model.formats.trained_directory import AZUREML_MODEL, differences
from train_pytorch_model.machine.console import logger

POLL_S = 10.0
LAST_LINES_S = 120.0  # to wait for the end of the log, which lags by at most a minute
# For which Azure may be unreachable while a job is watched, as from a laptop on the move.
OUTAGE_S = 1800.0

WAITING = {
    "NotStarted": "Azure ML is accepting the job",
    "Queued": "waiting for nodes of the cluster; starting one takes about 5 minutes",
    "Preparing": "building the environment's image, which takes 10 to 20 minutes, but only the first time",
    "Provisioning": "starting nodes",
    "Starting": "the nodes are pulling the image and mounting the data",
}
ACTIVE = {
    "Running": "",
    "Finalizing": "outputs and logs are being uploaded",
    "CancelRequested": "the job is being cancelled",
}


class JobFailedError(UserError):
    """The job has ended without a model."""

    exit_status = 4


def write(submission: Submission, folder: Path) -> None:
    """`--dry-run`: write the job to a new or empty folder, and send nothing.

    Raises `ServiceError`.
    """
    with owning_directory(folder, "dry_run"):
        job_folder.write_job_folder(submission, folder)
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


def submit(submission: Submission, workspace: Workspace) -> None:
    """Send the job, watch it, and download the trained model.

    Raises `ParameterError`, `ServiceError`, `JobFailedError`, `OutputDirectoryError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        job_folder.write_job_folder(submission, Path(folder))
        service = Service(workspace)
        job = send(submission, Path(folder), service)
    limit, target = submission.wait_limit, submission.download
    if limit == 0:
        _show_commands(
            job, workspace, f"continues: {job.studio_url}", "stream", "cancel", "download"
        )
        return
    try:
        follow(service, job, limit)
    except (KeyboardInterrupt, SystemExit, ServiceError):
        _show_commands(
            job, workspace, f"continues: {job.studio_url}", "stream", "cancel", "download"
        )
        raise
    if submission.register:
        logger.info(f"The trained model is registered as {submission.register}")
    if target:
        try:
            download(service, job, target)
        except BaseException:  # the trained model is still in Azure ML: say how to get it
            _show_commands(
                job, workspace, "is complete. Its model can still be downloaded:", "download"
            )
            raise
    if submission.register:
        describe_model(service, job, submission.register, target)


def register(submission: Submission, workspace: Workspace) -> None:
    """Register the components that have changed, without a job.

    Raises `ParameterError`, `ServiceError`.
    """
    with tempfile.TemporaryDirectory() as folder:
        job_folder.copy_project(submission, Path(folder))
        _register(submission, Path(folder), Service(workspace))


def _register(submission: Submission, folder: Path, service: Service) -> None:
    if submission.has_own_environment:
        service.register_environment(folder / ENVIRONMENT_FILE)
    if submission.register_components:
        service.register_components(
            job_folder.component_files(folder), job_folder.components_version(folder)
        )


def send(submission: Submission, folder: Path, service: Service) -> Job:
    """Check all, create what is missing, upload, submit.

    Raises `ParameterError`, `ServiceError`.
    """
    job = load_valid_job(folder / JOB)
    cluster = None if submission.is_serverless else service.find_cluster(submission.compute)
    check_nodes(service, submission, cluster)
    if cluster is None and not submission.is_serverless:
        nodes = f"0 to {submission.new_max_nodes} nodes of {submission.new_vm_size}"
        logger.info(f"Creating the cluster {submission.compute}: {nodes}")
        service.create_cluster(submission)
    _register(submission, folder, service)
    logger.info("Uploading what the workspace does not have yet")
    sent = service.submit(job)
    logger.info(f"Job {sent.name}: {sent.studio_url}")
    return sent


def check_nodes(service: Service, wanted: Submission, cluster: Cluster | None) -> None:
    """Raise `ParameterError` if the cluster, or the nodes of a new one, do not fit what is wanted."""
    if cluster is None:
        size, offered = wanted.new_vm_size, service.gpus_by_vm_size()
        if size.lower() not in offered:
            with_gpus = sorted(name for name, gpus in offered.items() if gpus)
            raise ParameterError(
                f"{parameter('vm_size')} {size} is not offered in the region of the workspace."
                " Sizes with"
                f" GPUs there:{bulleted(with_gpus)}"
            )
        problems = wanted.too_many_processes(size, offered[size.lower()])
    else:
        asks = (
            wanted.process_count_per_instance > 1 and cluster.vm_size
        )  # one process fits any node
        gpus = service.gpus_by_vm_size().get(str(cluster.vm_size).lower()) if asks else None
        if wanted.max_nodes not in (None, cluster.max_nodes):
            logger.warning(
                f"{cluster.name} exists and has at most {cluster.max_nodes} nodes;"
                f" {parameter('max_nodes')} is ignored."
            )
        problems = cluster.problems(wanted, gpus)
    if text := "\n".join(problems):
        raise ParameterError(text)


def follow(service: Service, job: Job, limit_min: int | None) -> None:
    """Report the phases of a job and show its log, until it is complete.

    Tolerates minutes without a network. Raises `JobFailedError`, and `ServiceError` if the job can
    no longer be watched, or is not complete within the limit.
    """
    started_at = reached_at = time.monotonic()
    is_lost = False
    shown: dict[str, str] = {}
    log: LogStream | None = None
    while True:
        now = time.monotonic()
        try:
            phases = service.phases(job)
            reached_at, is_lost = now, False
        except ServiceError as error:
            if not error.is_transient or now - reached_at >= OUTAGE_S:
                raise
            if not is_lost:
                logger.warning(
                    f"{str(error).rstrip('.')}. Trying again for {OUTAGE_S / 60:.0f} minutes."
                )
            phases, is_lost = {}, True
        for step, phase in phases.items():
            if shown.get(step) != phase:
                reason = WAITING.get(phase) or ACTIVE.get(phase)
                elapsed = timedelta(seconds=int(now - started_at))
                logger.info(f"[{elapsed}] {step}{phase}{f': {reason}' if reason else ''}")
        shown |= phases
        status = shown.get("", "NotStarted")
        if log is None and status not in WAITING:
            log = LogStream(service, job)
        if log is not None:
            is_over = status not in ACTIVE
            log.warn_of_problem(within_s=LAST_LINES_S if is_over else 0.0)
            if is_over:
                break
        if limit_min is not None and now - started_at >= 60 * limit_min:
            raise ServiceError(
                f"Job {job.name} was not complete after {limit_min} minutes. It continues."
            )
        time.sleep(POLL_S)
    if status != "Completed":
        why = f": {log.failure}" if log.failure else ""
        raise JobFailedError(f"Job {job.name} is {status}{why}. Its logs: {job.studio_url}")


def download(service: Service, job: Job, target: Path) -> None:
    """Download a complete job's model, whole or not at all.

    Raises `OutputDirectoryError`, `ServiceError`.
    """
    with (
        owning_directory(target, "download"),
        tempfile.TemporaryDirectory(dir=target, prefix=".download-") as temporary,
    ):
        found = service.download(job, TRAINED_MODEL, Path(temporary))
        problems = differences(found) if (found / META).is_file() else [f"{META} is missing"]
        if problems:
            raise ServiceError(
                f"The downloaded model of job {job.name} is damaged:{bulleted(problems)}"
            )
        for entry in sorted(found.iterdir(), key=lambda path: path.name == META):
            entry.rename(target / entry.name)
    logger.info(f"The trained model is in {target}")


def describe_model(service: Service, job: Job, name: str, model: Path | None) -> None:
    """Give the registered model its card and tags, which Azure ML does not read; a failure is a
    warning.
    """
    try:
        with tempfile.TemporaryDirectory() as scratch:
            made = read_yaml(
                (model or service.download(job, TRAINED_MODEL, Path(scratch))) / AZUREML_MODEL
            )
        service.describe_model(name, made["description"], made["tags"])
    except (ServiceError, MalformedFileError, KeyError) as error:
        logger.warning(f"The model registered as {name} has no description: {error}")


def _show_commands(job: Job, workspace: Workspace, state: str, *verbs: str) -> None:
    logger.info(f"\nJob {job.name} {state}")
    for verb in verbs:
        output = f" --output-name {TRAINED_MODEL}" if verb == "download" else ""
        logger.info(f"  az ml job {verb} --name {job.name}{output} {workspace.flags()}")
