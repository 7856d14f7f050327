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
from train_pytorch_model.formats.files import META, check_output
from train_pytorch_model.formats.manifest import differences
from train_pytorch_model.progress import Voice
from train_pytorch_model.submission.cluster import Cluster, Nodes, known_gpus
from train_pytorch_model.submission.job_folder import JOB, TRAINED_MODEL, component_files
from train_pytorch_model.submission.phases import COMPLETED, GOING_ON, WAITING, clock, explained
from train_pytorch_model.submission.request import Submission
from train_pytorch_model.submission.workspace import Workspace

POLL_S = 10.0
LAST_LINES_S = 120.0  # the log is shown at most a minute late
OUTAGE_S = 1800.0  # that Azure may be out of reach while a job is watched, as from a laptop that moves
IDLE_S = 600  # before a node of a cluster of ours is given back: a second trial finds it still warm

_COLOUR = re.compile(r"\x1b\[\d+m")
_DETAILS = re.compile(r"Details: (?:\(x\) )?(.*?) Resolutions:")  # the rest is advice on other tools
_SIGN_IN_CODE = re.compile(r"AADSTS\d+: [^.]*\.")
_SIGNATURE = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")


class ServiceError(UserError):
    """Azure ML cannot be reached, or refuses, or takes too long."""

    exit_status = 4
    code = ""

    def __init__(self, text: str, is_passing: bool = False) -> None:
        super().__init__(text)
        self.is_passing = is_passing
        """Whether it may be different in a minute."""


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
            size = nodes.new_vm_size
            gpus = _gpus(client, size)
            if gpus is None:
                with_gpus = sorted(name for name, count in _offered(client).items() if count)
                raise ParameterError(
                    f"--vm-size {size} is not offered in the region of the workspace. Offered are, with GPUs:"
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
    watch = _Watch(client, job, voice)
    told: dict[str, str] = {}
    log = None
    while True:
        phases = watch.phases()
        for step, phase in phases.items():
            if told.get(step) != phase:
                voice.say(f"[{clock(watch.elapsed_s)}] {step}{explained(phase)}")
        told |= phases
        status = told.get("", "NotStarted")
        if log is None and status not in WAITING:
            log = _LogStream(client, str(job.name))
        if log is not None:
            is_over = status not in GOING_ON
            log.tell_problem(voice, within_s=LAST_LINES_S if is_over else 0.0)
            if is_over:
                break
        if wait_limit_s is not None and watch.elapsed_s >= wait_limit_s:
            return False
        time.sleep(POLL_S)
    if status != COMPLETED:
        why = f": {log.failure}" if log.failure else ""
        raise JobFailedError(f"Job {job.name} is {status}{why}. Its logs: {job.studio_url}")
    return True


def download(client: MLClient, job: Job, target: Path, voice: Voice) -> None:
    """The trained model of a completed job. Nothing of it is at `target` until all is here and checked.

    Raises `OutputDirectoryError` where `target` has been filled in the meantime, `ServiceError`.
    """
    check_output(target, "--download")
    # One that is there stays the directory that it is: a mount or where one works cannot be replaced.
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
    voice.say(f"The trained model is in {target}")


def _gpus(client: MLClient, vm_size: str) -> int | None:
    """GPUs of a VM size, from the table or from Azure; None if neither has it."""
    gpus = known_gpus(vm_size)
    return _offered(client).get(vm_size.lower()) if gpus is None else gpus


def _offered(client: MLClient) -> dict[str, int]:
    """VM size in lower case → its GPUs, of the region of the workspace."""
    return {str(size.name).lower(): int(size.gpus or 0) for size in client.compute.list_sizes()}


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


class _Watch:
    """Asks in which phases a job is, and does not give up while a network is away for minutes."""

    def __init__(self, client: MLClient, job: Job, voice: Voice) -> None:
        self._client, self._job, self._voice = client, job, voice
        self._started_at = time.monotonic()
        self._reached_after_s = 0.0
        self._is_lost = False
        self.elapsed_s = 0.0
        """Until the phases were asked for."""

    def phases(self) -> dict[str, str]:
        """As `_phases`; none where Azure is out of reach. Raises `ServiceError`, of that after `OUTAGE_S`."""
        self.elapsed_s = time.monotonic() - self._started_at
        try:
            with _telling(f"Watching job {self._job.name}"):
                phases = _phases(self._client, self._job)
        except ServiceError as error:
            if not error.is_passing or self.elapsed_s - self._reached_after_s >= OUTAGE_S:
                raise
            if not self._is_lost:
                why = str(error).rstrip(".")
                self._voice.warn(f"{why}. Trying again for {OUTAGE_S / 60:.0f} minutes.")
            self._is_lost = True
            return {}
        self._reached_after_s, self._is_lost = self.elapsed_s, False
        return phases


class _LogStream(Thread):
    """Prints the log of a job until it ends. A daemon: the client's own loop cannot be told to stop."""

    def __init__(self, client: MLClient, name: str) -> None:
        super().__init__(daemon=True)
        self._client, self._name = client, name
        self._problem = ""
        self.failure = ""
        """Why the job has failed, as Azure tells it."""
        self.start()

    def tell_problem(self, voice: Voice, within_s: float) -> None:
        """Warn, once, if the log cannot be shown; wait that long for its end."""
        self.join(within_s)
        if self._problem:
            voice.warn(f"The log cannot be shown here any more: {self._problem}")
            self._problem = ""

    def run(self) -> None:
        try:
            self._client.jobs.stream(self._name)
        except JobException as error:
            self.failure = _failure(str(error.message))
        except Exception as error:  # whatever it is, the job goes on
            self._problem = _said(error)


def _phases(client: MLClient, job: Job) -> dict[str, str]:
    """Step of a pipeline, as `step: ` → its phase; the job itself is the step without a name."""
    children = client.jobs.list(parent_job_name=job.name) if job.type == "pipeline" else ()
    steps = {f"{child.display_name}: ": _word(child.status) for child in children if child}
    return {**steps, "": _word(client.jobs.get(job.name).status)}


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
        raise ServiceError(f"{step}: Azure cannot be reached. {_said(error)}", is_passing=True) from error
    except HttpResponseError as error:
        status = error.status_code or 0
        is_passing = status in (408, 429) or status >= 500
        raise ServiceError(f"{step}: Azure answers {status}. {_said(error)}", is_passing) from error
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
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    text = _one_line(text.partition("\nCode: ")[0])  # from there on it is the same once more, in parts
    details = _DETAILS.search(text)
    return (details[1] if details else text)[:500]


def _one_line(text: str) -> str:
    """Without colours, and without the signatures of addresses."""
    return _SIGNATURE.sub(r"\1?…", " ".join(_COLOUR.sub("", text).split()))
