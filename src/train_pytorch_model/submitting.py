"""The story of `submit`: the cluster, the job, its phases and its log, the model. All of azure is here."""

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

from train_pytorch_model.errors import ParameterError, UserError, listed
from train_pytorch_model.formats.files import META
from train_pytorch_model.manifest import differences
from train_pytorch_model.progress import Voice
from train_pytorch_model.submission.cluster import Cluster, Nodes, known_gpus
from train_pytorch_model.submission.job_folder import JOB, TRAINED_MODEL, component_files
from train_pytorch_model.submission.request import Submission
from train_pytorch_model.submission.workspace import Workspace

POLL_S = 10.0
LAST_LINES_S = 120.0  # the log is shown at most a minute late
IDLE_S = 600  # before a node of a cluster of ours is given back: a second trial finds it still warm

WAITING = {
    "NotStarted": "Azure ML takes the job on",
    "Queued": "waiting for nodes of the cluster; one that must be started takes about 5 minutes",
    "Preparing": "the environment's image is built, which takes 10 to 20 minutes, but only the first time",
    "Provisioning": "nodes are being started",
    "Starting": "the nodes fetch the image and mount the data",
}
GOING_ON = {
    "Running": "",
    "Finalizing": "outputs and logs are being uploaded",
    "CancelRequested": "somebody has cancelled it",
}
COMPLETED = "Completed"
_COLOUR = re.compile(r"\x1b\[\d+m")
_DETAILS = re.compile(r"Details: (?:\(x\) )?(.*?) Resolutions:")  # the rest is advice on other tools
_SIGN_IN_CODE = re.compile(r"AADSTS\d+: [^.]*\.")
_SIGNATURE = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")


class ServiceError(UserError):
    """Azure ML cannot be reached, or refuses, or takes too long."""

    exit_status = 4
    code = ""


class JobFailedError(UserError):
    """The job has ended without a model."""

    exit_status = 4
    code = ""


def connect(workspace: Workspace, voice: Voice) -> MLClient:
    """A client of the workspace, whose address and credential have been tried.

    Raises `ParameterError` where there is no such workspace, `ServiceError`.
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
                f" subscription {workspace.subscription_id}, or it is not shown to you."
            ) from error
    voice.say(f"Workspace {workspace.name}, {location}")
    return client


def validate(folder: Path) -> Job:
    """The job in a folder as azure-ai-ml reads it, offline. Raises `ServiceError`."""
    _silence_client()
    with _telling("Reading the job"):
        job = load_job(source=folder / JOB)
        result = cast(Any, job)._validate()  # as create_or_update does; what is public needs a workspace
        if not result.passed:
            raise ServiceError(f"azure-ai-ml refuses the job: {result.error_messages}")
    return job


def send(
    submission: Submission, folder: Path, register_components: bool, client: MLClient, voice: Voice
) -> Job:
    """Make what is missing, upload and submit. Everything is refused before anything is made.

    Raises `ParameterError`, `ServiceError`.
    """
    job = validate(folder)
    cluster = find_cluster(client, submission.nodes, voice)

    if cluster is None:
        make_cluster(client, submission.nodes, voice)
    if register_components:
        for path in component_files(folder):
            _register(client, path, voice)
    voice.say("Uploading what is not there yet")
    with _telling("Submitting the job"):
        sent: Job = client.jobs.create_or_update(job)
    voice.say(f"Job {sent.name}: {sent.studio_url}")
    return sent


def find_cluster(client: MLClient, nodes: Nodes, voice: Voice) -> Cluster | None:
    """The cluster, None if it is to be made. Raises `ParameterError` if the nodes cannot be had."""
    with _telling(f"Looking for the cluster {nodes.cluster}"):
        try:
            found = client.compute.get(nodes.cluster)
        except ResourceNotFoundError:
            gpus = _gpus(client, nodes.new_vm_size)
            _refuse(nodes.too_many_processes(nodes.new_vm_size, gpus))
            return None
        cluster = Cluster(
            nodes.cluster,
            str(found.type).lower(),
            getattr(found, "size", None),
            getattr(found, "max_instances", None),
        )
        _refuse(cluster.problems(nodes, _gpus(client, cluster.vm_size) if cluster.vm_size else None))
    if ignored := cluster.ignored(nodes):
        voice.warn(ignored)
    return cluster


def make_cluster(client: MLClient, nodes: Nodes, voice: Voice) -> None:
    """Costs nothing as long as no job runs: it begins with no nodes, and gives back idle ones."""
    size, maximum = nodes.new_vm_size, nodes.new_max_nodes
    voice.say(f"Making the cluster {nodes.cluster}: 0 to {maximum} nodes of {size}")
    with _telling(f"Making the cluster {nodes.cluster}"):
        client.compute.begin_create_or_update(
            AmlCompute(
                name=nodes.cluster,
                size=size,
                min_instances=0,
                max_instances=maximum,
                idle_time_before_scale_down=IDLE_S,
            )
        ).result()


def follow(client: MLClient, job: Job, wait_limit_s: float | None, voice: Voice) -> bool:
    """Say which phase the job is in and show its log; whether it is complete, or the limit was reached first.

    Raises `JobFailedError`, and `ServiceError` if it cannot be watched any more.
    """
    started_at = time.monotonic()
    told: dict[str, str] = {}
    log = None
    while True:
        with _telling(f"Watching job {job.name}"):
            phases = _phases(client, job)
        elapsed_s = time.monotonic() - started_at
        for step, phase in phases.items():
            if told.get(step) != phase:
                voice.say(f"[{_clock(elapsed_s)}] {step}{_explained(phase)}")
        told, status = phases, phases[""]
        if log is None and status not in WAITING:
            log = _LogStream(client, str(job.name))
        if log is not None and status not in GOING_ON:
            log.join(LAST_LINES_S)
            break
        if wait_limit_s is not None and elapsed_s >= wait_limit_s:
            return False
        time.sleep(POLL_S)
    if log.problem:
        voice.warn(f"The log cannot be shown here: {log.problem}")
    if status != COMPLETED:
        why = f": {log.failure}" if log.failure else ""
        raise JobFailedError(f"Job {job.name} is {status}{why}. Its logs: {job.studio_url}")
    return True


def download(client: MLClient, job: Job, target: Path, voice: Voice) -> None:
    """The trained model of a completed job. Nothing is at `target` until all of it is there and checked.

    Raises `ServiceError`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
        with _telling(f"Downloading the model of job {job.name}"):
            client.jobs.download(job.name, download_path=temporary, output_name=TRAINED_MODEL)
        found = Path(temporary, "named-outputs", TRAINED_MODEL)
        problems = differences(found) if (found / META).is_file() else [f"{META} is missing"]
        if problems:
            raise ServiceError(f"The downloaded model of job {job.name} is damaged:{listed(problems)}")
        if target.exists():
            target.rmdir()  # empty: Windows renames onto nothing that exists
        found.rename(target)
    voice.say(f"The trained model is in {target}")


def _gpus(client: MLClient, vm_size: str) -> int:
    """GPUs of a VM size, from the table or from Azure. Raises `ParameterError` for an unknown one."""
    gpus = known_gpus(vm_size)
    if gpus is not None:
        return gpus
    offered = {str(size.name).lower(): size.gpus or 0 for size in client.compute.list_sizes()}
    if vm_size.lower() not in offered:
        with_gpus = sorted(name for name, count in offered.items() if count)
        raise ParameterError(
            f"--vm-size {vm_size} is not offered in the region of the workspace. Offered are, with GPUs:"
            + listed(with_gpus)
        )
    return int(offered[vm_size.lower()])


def _register(client: MLClient, path: Path, voice: Voice) -> None:
    component = load_component(source=path)
    with _telling(f"Registering component {component.name}"):
        try:
            client.components.get(component.name, version=component.version)
        except ResourceNotFoundError:
            client.components.create_or_update(component, version=component.version)
            voice.say(f"Registered component {component.name} {component.version}")
        else:
            voice.say(f"Component {component.name} {component.version} is registered already")


class _LogStream(Thread):
    """Prints the log of a job until it ends. A daemon: the client's own loop cannot be told to stop."""

    def __init__(self, client: MLClient, name: str) -> None:
        super().__init__(daemon=True)
        self._client, self._name = client, name
        self.failure = ""
        """Why the job has failed, as Azure tells it."""
        self.problem = ""
        """Why the log cannot be shown."""
        self.start()

    def run(self) -> None:
        try:
            self._client.jobs.stream(self._name)
        except JobException as error:
            self.failure = _failure(str(error.message))
        except Exception as error:  # whatever it is, the job goes on
            self.problem = _said(error)


def _phases(client: MLClient, job: Job) -> dict[str, str]:
    """Step of a pipeline, as `step: ` → its phase; the job itself is the step without a name."""
    children = client.jobs.list(parent_job_name=job.name) if job.type == "pipeline" else ()
    steps = {f"{child.display_name}: ": _word(child.status) for child in children if child}
    return {**steps, "": _word(client.jobs.get(job.name).status)}


def _explained(phase: str) -> str:
    reason = WAITING.get(phase) or GOING_ON.get(phase)
    return f"{phase}: {reason}" if reason else phase


def _word(status: object) -> str:
    """A status as the service spells it; the client makes some of them members of an enumeration."""
    return str(getattr(status, "value", status))


def _failure(text: str) -> str:
    """The words in the JSON that a failed job's exception holds."""
    with contextlib.suppress(ValueError, KeyError, TypeError):
        text = json.loads(text[text.index("{") :])["error"]["message"]
    return _one_line(text).rstrip(".")


def _refuse(problems: Iterable[str]) -> None:
    if problems := list(problems):
        raise ParameterError("\n".join(problems))


def _silence_client() -> None:
    """It warns of its own classes, to a handler of its own; what goes wrong it raises as well."""
    for name in ("azure", "azure.ai.ml"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def _telling(step: str) -> Iterator[None]:
    """Turn what the client raises into one sentence."""
    try:
        with _without_codes():
            yield
    except ClientAuthenticationError as error:
        raise ServiceError(
            f"{step}: no credential works here. Sign in with `az login`, or set AZURE_CLIENT_ID,"
            f" AZURE_TENANT_ID and AZURE_CLIENT_SECRET. {_refusal(error)}".rstrip()
        ) from error
    except (ServiceRequestError, ServiceResponseError) as error:
        raise ServiceError(f"{step}: Azure cannot be reached. {_said(error)}") from error
    except HttpResponseError as error:
        raise ServiceError(f"{step}: Azure answers {error.status_code}. {_said(error)}") from error
    except (AzureError, MlException, OSError) as error:
        raise ServiceError(f"{step}: {_said(error)}") from error


def _refusal(error: ClientAuthenticationError) -> str:
    """What a server has said; of the list of all that was tried here, nothing."""
    said = _one_line(str(error))
    if error.response is not None:
        return said[:500]
    code = _SIGN_IN_CODE.search(said)
    return code[0] if code else ""


@contextlib.contextmanager
def _without_codes() -> Iterator[None]:
    """The client ends its progress bars in colour, also where it shows none and nobody sees colours."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield


def _said(error: Exception) -> str:
    text = _one_line(getattr(error, "message", None) or str(error) or type(error).__name__)
    details = _DETAILS.search(text)
    return (details[1] if details else text)[:500]


def _one_line(text: str) -> str:
    """Without colours, and without the signatures of addresses."""
    return _SIGNATURE.sub(r"\1?…", " ".join(_COLOUR.sub("", text).split()))


def _clock(elapsed_s: float) -> str:
    minutes, seconds = divmod(int(elapsed_s), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
