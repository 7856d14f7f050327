"""The steps of `submit`: cluster, job, phases and log, model. The only module that imports azure."""

import contextlib
import io
import json
import logging
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any, cast

from azure.ai.ml import MLClient, load_component, load_job
from azure.ai.ml.entities import AmlCompute, Job
from azure.ai.ml.exceptions import JobException, MlException
from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
    ServiceResponseError,
)
from azure.identity import DefaultAzureCredential

from train_pytorch_model.formats.manifest import differences
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.reading import META
from train_pytorch_model.machine.console import logger
from train_pytorch_model.submission.cluster import Cluster, Nodes, known_gpus
from train_pytorch_model.submission.job_folder import JOB, TRAINED_MODEL, component_files
from train_pytorch_model.submission.phases import ACTIVE, COMPLETED, WAITING, clock, explained
from train_pytorch_model.submission.request import Submission
from train_pytorch_model.submission.workspace import Workspace
from train_pytorch_model.words.errors import ParameterError, UserError, listed

POLL_S = 10.0
LAST_LINES_S = 120.0  # to wait for the end of the log, which lags by at most a minute
OUTAGE_S = 1800.0  # for which Azure may be unreachable while a job is watched, as from a laptop on the move
IDLE_S = 600  # before an idle node of a cluster created here is released: a second trial finds it warm

_COLOUR = re.compile(r"\x1b\[\d+m")
_DETAILS = re.compile(r"Details: (?:\(x\) )?(.*?) Resolutions:")  # the rest is advice on other tools
_SIGN_IN_CODE = re.compile(r"AADSTS\d+: [^.]*\.")
_SIGNATURE = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")


class ServiceError(UserError):
    """Azure ML cannot be reached, refuses a request, or takes too long."""

    exit_status = 4
    code = ""

    def __init__(self, text: str, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient
        """Whether the error is transient, so that a retry may succeed."""


class JobFailedError(UserError):
    """The job has ended without a model."""

    exit_status = 4
    code = ""


def connect(workspace: Workspace) -> MLClient:
    """Return a client of the workspace, after trying its address and the credential.

    Raises `ParameterError` if there is no such workspace, `ServiceError`.
    """
    _silence_client()
    with _telling(f"Opening workspace {workspace.name}"):
        client = MLClient(
            DefaultAzureCredential(),
            workspace.subscription_id,
            workspace.resource_group,
            workspace.name,
            enable_telemetry=False,
            show_progress=sys.stderr.isatty(),
        )
        try:
            location = client.workspaces.get(workspace.name).location
        except ResourceNotFoundError as error:
            raise ParameterError(
                f"There is no workspace {workspace.name} in resource group {workspace.resource_group} of"
                f" subscription {workspace.subscription_id}, or you have no access to it."
            ) from error
    logger.info(f"Workspace {workspace.name}, {location}")
    return client


def validate(folder: Path) -> Job:
    """Load and validate the job in a folder with azure-ai-ml, offline. Raises `ServiceError`."""
    _silence_client()
    with _telling("Reading the job"):
        job = load_job(source=folder / JOB)
        result = cast(Any, job)._validate()  # as create_or_update does; the public way needs a workspace
        if not result.passed:
            raise ServiceError(f"azure-ai-ml refuses the job: {result.error_messages}")
    return job


def send(submission: Submission, folder: Path, register_components: bool, client: MLClient) -> Job:
    """Create what is missing, upload and submit. Every check comes before anything is created.

    Raises `ParameterError`, `ServiceError`.
    """
    job = validate(folder)
    cluster = find_cluster(client, submission.nodes)

    if cluster is None:
        make_cluster(client, submission.nodes)
    if register_components:
        for path in component_files(folder):
            _register(client, path)
    logger.info("Uploading what the workspace does not have yet")
    with _telling("Submitting the job"):
        sent: Job = client.jobs.create_or_update(job)
    logger.info(f"Job {sent.name}: {sent.studio_url}")
    return sent


def find_cluster(client: MLClient, nodes: Nodes) -> Cluster | None:
    """Return the cluster; None if it must be created. Raises `ParameterError` if the nodes do not fit it."""
    with _telling(f"Looking for the cluster {nodes.cluster}"):
        try:
            found = client.compute.get(nodes.cluster)
        except ResourceNotFoundError:
            size = nodes.new_vm_size
            gpus = _gpus(client, size)
            if gpus is None:
                with_gpus = sorted(name for name, count in _offered(client).items() if count)
                raise ParameterError(
                    f"--vm-size {size} is not offered in the region of the workspace. Sizes with GPUs there:"
                    + listed(with_gpus)
                ) from None
            _refuse(nodes.too_many_processes(size, gpus))
            return None
        cluster = Cluster(
            nodes.cluster,
            str(found.type).lower(),
            getattr(found, "size", None),
            getattr(found, "max_instances", None),
        )
        _refuse(cluster.problems(nodes, _gpus(client, cluster.vm_size) if cluster.vm_size else None))
    if ignored := cluster.ignored(nodes):
        logger.warning(ignored)
    return cluster


def make_cluster(client: MLClient, nodes: Nodes) -> None:
    """Create the cluster. It costs nothing while no job runs: it starts empty and releases idle nodes."""
    size, maximum = nodes.new_vm_size, nodes.new_max_nodes
    logger.info(f"Creating the cluster {nodes.cluster}: 0 to {maximum} nodes of {size}")
    with _telling(f"Creating the cluster {nodes.cluster}"):
        client.compute.begin_create_or_update(
            AmlCompute(
                name=nodes.cluster,
                size=size,
                min_instances=0,
                max_instances=maximum,
                idle_time_before_scale_down=IDLE_S,
            )
        ).result()


def follow(client: MLClient, job: Job, wait_limit_s: float | None) -> bool:
    """Report the phases of a job and show its log; return whether it completed within the wait limit.

    Raises `JobFailedError`, and `ServiceError` if it can no longer be watched.
    """
    watch = _Watch(client, job)
    told: dict[str, str] = {}
    log = None
    while True:
        phases = watch.phases()
        for step, phase in phases.items():
            if told.get(step) != phase:
                logger.info(f"[{clock(watch.elapsed_s)}] {step}{explained(phase)}")
        told |= phases
        status = told.get("", "NotStarted")
        if log is None and status not in WAITING:
            log = _LogStream(client, str(job.name))
        if log is not None:
            is_over = status not in ACTIVE
            log.tell_problem(within_s=LAST_LINES_S if is_over else 0.0)
            if is_over:
                break
        if wait_limit_s is not None and watch.elapsed_s >= wait_limit_s:
            return False
        time.sleep(POLL_S)
    if status != COMPLETED:
        why = f": {log.failure}" if log.failure else ""
        raise JobFailedError(f"Job {job.name} is {status}{why}. Its logs: {job.studio_url}")
    return True


def download(client: MLClient, job: Job, target: Path) -> None:
    """Download the trained model of a completed job. It appears at `target` only when complete and checked.

    Raises `OutputDirectoryError` if `target` was filled in the meantime, `ServiceError`.
    """
    check_output(target, "--download")
    # An existing directory is filled, not replaced: it may be a mount or the working directory.
    is_there = target.exists()
    with _telling(f"Downloading the model of job {job.name}"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=target if is_there else target.parent, prefix=f".{target.name}-"
        ) as temporary:
            client.jobs.download(job.name, download_path=temporary, output_name=TRAINED_MODEL)
            found = Path(temporary, "named-outputs", TRAINED_MODEL)
            problems = differences(found) if (found / META).is_file() else [f"{META} is missing"]
            if problems:
                raise ServiceError(f"The downloaded model of job {job.name} is damaged:{listed(problems)}")
            if is_there:
                for entry in sorted(found.iterdir(), key=lambda path: path.name == META):
                    entry.rename(target / entry.name)
            else:
                found.rename(target)
    logger.info(f"The trained model is in {target}")


def _gpus(client: MLClient, vm_size: str) -> int | None:
    """Return the number of GPUs of a VM size, from the table or from Azure; None if neither has it."""
    gpus = known_gpus(vm_size)
    return _offered(client).get(vm_size.lower()) if gpus is None else gpus


def _offered(client: MLClient) -> dict[str, int]:
    """VM size in lower case → number of GPUs, for the region of the workspace."""
    return {str(size.name).lower(): int(size.gpus or 0) for size in client.compute.list_sizes()}


def _register(client: MLClient, path: Path) -> None:
    component = load_component(source=path)
    with _telling(f"Registering component {component.name}"):
        try:
            client.components.get(component.name, version=component.version)
        except ResourceNotFoundError:
            client.components.create_or_update(component, version=component.version)
            logger.info(f"Registered component {component.name} {component.version}")
        else:
            logger.info(f"Component {component.name} {component.version} is registered already")


class _Watch:
    """Polls the phases of a job, and tolerates minutes without a network."""

    def __init__(self, client: MLClient, job: Job) -> None:
        self._client, self._job = client, job
        self._started_at = time.monotonic()
        self._reached_after_s = 0.0
        self._is_lost = False
        self.elapsed_s = 0.0
        """From the start to the latest poll."""

    def phases(self) -> dict[str, str]:
        """Like `_phases`, but empty in an outage. Raises `ServiceError`, for an outage after `OUTAGE_S`."""
        self.elapsed_s = time.monotonic() - self._started_at
        try:
            with _telling(f"Watching job {self._job.name}"):
                phases = _phases(self._client, self._job)
        except ServiceError as error:
            if not error.is_transient or self.elapsed_s - self._reached_after_s >= OUTAGE_S:
                raise
            if not self._is_lost:
                why = str(error).rstrip(".")
                logger.warning(f"{why}. Trying again for {OUTAGE_S / 60:.0f} minutes.")
            self._is_lost = True
            return {}
        self._reached_after_s, self._is_lost = self.elapsed_s, False
        return phases


class _LogStream(Thread):
    """Prints the log of a job until it ends. A daemon thread: the client's own loop cannot be stopped."""

    def __init__(self, client: MLClient, name: str) -> None:
        super().__init__(daemon=True)
        self._client, self._name = client, name
        self._problem = ""
        self.failure = ""
        """Why the job failed, in Azure's words."""
        self.start()

    def tell_problem(self, within_s: float) -> None:
        """Wait up to `within_s` for the end of the log; warn, once, if it cannot be shown."""
        self.join(within_s)
        if self._problem:
            logger.warning(f"The log cannot be shown here any more: {self._problem}")
            self._problem = ""

    def run(self) -> None:
        try:
            self._client.jobs.stream(self._name)
        except JobException as error:
            self.failure = _failure(str(error.message))
        except Exception as error:  # whatever it is, the job continues
            self._problem = _said(error)


def _phases(client: MLClient, job: Job) -> dict[str, str]:
    """Pipeline step, as `step: ` → its phase; the job itself has an empty name."""
    children = client.jobs.list(parent_job_name=job.name) if job.type == "pipeline" else ()
    steps = {f"{child.display_name}: ": _word(child.status) for child in children if child}
    return {**steps, "": _word(client.jobs.get(job.name).status)}


def _word(status: object) -> str:
    """Return a status as the service spells it; the client turns some into enum members."""
    return str(getattr(status, "value", status))


def _failure(text: str) -> str:
    """Return the message in the JSON that a failed job's exception holds."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text[text.index("{") :])["error"]["message"]
    return _one_line(text).rstrip(".")


def _refuse(problems: Iterable[str]) -> None:
    if problems := list(problems):
        raise ParameterError("\n".join(problems))


def _silence_client() -> None:
    """Silence the client's loggers: they warn about its own classes, and errors are raised anyway."""
    for name in ("azure", "azure.ai.ml"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _telling(step: str) -> Iterator[None]:
    """Turn an exception of the client into a `ServiceError` of one sentence."""
    try:
        with _without_codes():
            yield
    except ClientAuthenticationError as error:
        raise ServiceError(
            f"{step}: no credential works here. Sign in with `az login`, or set AZURE_CLIENT_ID,"
            f" AZURE_TENANT_ID and AZURE_CLIENT_SECRET. {_refusal(error)}".rstrip()
        ) from error
    except (ServiceRequestError, ServiceResponseError) as error:
        raise ServiceError(f"{step}: Azure cannot be reached. {_said(error)}", is_transient=True) from error
    except HttpResponseError as error:
        status = error.status_code or 0
        is_transient = status in (408, 429) or status >= 500
        raise ServiceError(f"{step}: Azure answers {status}. {_said(error)}", is_transient) from error
    except (AzureError, MlException, OSError) as error:
        raise ServiceError(f"{step}: {_said(error)}") from error


def _refusal(error: ClientAuthenticationError) -> str:
    """Return the server's message, or the sign-in code; not the list of credentials that were tried."""
    said = _one_line(str(error))
    if error.response is not None:
        return said[:500]
    code = _SIGN_IN_CODE.search(said)
    return code[0] if code else ""


@contextlib.contextmanager
def _without_codes() -> Iterator[None]:
    """Discard standard error unless it is a terminal: the client colours even hidden progress bars."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield


def _said(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    text = _one_line(text.partition("\nCode: ")[0])  # what follows repeats it, in parts
    details = _DETAILS.search(text)
    return (details[1] if details else text)[:500]


def _one_line(text: str) -> str:
    """Return the text on one line, without colours and without the signatures of URLs."""
    return _SIGNATURE.sub(r"\1?…", " ".join(_COLOUR.sub("", text).split()))
