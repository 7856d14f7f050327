"""Azure ML as `submit` needs it. The only module that imports azure, which takes seconds."""

import io
import json
import logging
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stderr, suppress
from pathlib import Path
from threading import Thread
from typing import Any, cast

from azure.ai.ml import MLClient, load_component, load_environment, load_job
from azure.ai.ml.entities import AmlCompute, Job
from azure.ai.ml.exceptions import JobException, MlException
from azure.core import exceptions
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from msgspec.structs import astuple

from train_pytorch_model.azure.request import Cluster, Submission, Workspace
from train_pytorch_model.errors import ParameterError, UserError
from train_pytorch_model.machine.console import logger

__all__ = ["Job", "LogStream", "Service", "ServiceError", "load_valid_job"]

IDLE_S = (
    600  # before an idle node of a cluster created here is released: a second trial finds it warm
)

_COLOUR = re.compile(r"\x1b\[\d+m")
_DETAILS = re.compile(
    r"Details: (?:\(x\) )?(.*?) Resolutions:"
)  # the rest is advice on other tools
_SIGN_IN_CODE = re.compile(r"AADSTS\d+: [^.]*\.")
_SIGNATURE = re.compile(r"(https?://[^\s?\"']+)\?[^\s\"']+")

for name in (
    "azure",
    "azure.ai.ml",
):  # they warn about their own classes, and errors are raised anyway
    logging.getLogger(name).setLevel(logging.CRITICAL)


class ServiceError(UserError):
    """Azure ML cannot be reached, refuses a request, or takes too long."""

    exit_status = 4

    def __init__(self, text: str, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient


def load_valid_job(path: Path) -> Job:
    """Load a job's YAML and validate it with azure-ai-ml, offline. Raises `ServiceError`."""
    with _translating_errors("Reading the job"):
        job = load_job(source=path)
        result = cast(
            Any, job
        )._validate()  # as create_or_update does; the public way needs a workspace
        if not result.passed:
            raise ServiceError(f"azure-ai-ml refuses the job: {result.error_messages}")
    return job


class Service:
    """A workspace. Every method raises `ServiceError` if Azure cannot be reached or refuses."""

    def __init__(self, workspace: Workspace) -> None:
        """Open a workspace and try the credential.

        Raises `ParameterError` if there is no such workspace.
        """
        subscription, group, name = astuple(workspace)
        with _translating_errors(f"Opening workspace {name}"):
            self.client = MLClient(
                *(DefaultAzureCredential(), subscription, group, name),
                enable_telemetry=False,
                show_progress=sys.stderr.isatty(),
            )
            try:
                location = self.client.workspaces.get(name).location
            except ResourceNotFoundError as error:
                raise ParameterError(
                    f"There is no workspace {name} in resource group {group} of subscription"
                    f" {subscription},"
                    " or you have no access to it."
                ) from error
        logger.info(f"Workspace {name}, {location}")

    def find_cluster(self, name: str) -> Cluster | None:
        """Return a cluster; None if there is none of this name."""
        with _translating_errors(f"Looking for the cluster {name}"):
            try:
                compute = self.client.compute.get(name)
            except ResourceNotFoundError:
                return None
            size, max_nodes = (
                getattr(compute, "size", None),
                getattr(compute, "max_instances", None),
            )
            # Azure says LowPriority, and the client takes low_priority.
            tier = str(getattr(compute, "tier", "")).lower().replace("_", "")
            return Cluster(name, str(compute.type).lower(), size, max_nodes, tier == "lowpriority")

    def gpus_by_vm_size(self) -> Mapping[str, int]:
        """VM size in lower case → number of GPUs, for the region of the workspace."""
        with _translating_errors("Looking for VM sizes"):
            return {
                str(size.name).lower(): int(size.gpus or 0)
                for size in self.client.compute.list_sizes()
            }

    def create_cluster(self, wanted: Submission) -> None:
        """Create a cluster.

        It costs nothing while no job runs: it starts empty and releases idle nodes.
        """
        cluster = AmlCompute(
            name=wanted.compute,
            size=wanted.new_vm_size,
            min_instances=0,
            max_instances=wanted.new_max_nodes,
            idle_time_before_scale_down=IDLE_S,
            tier="low_priority" if wanted.low_priority else "dedicated",
        )
        with _translating_errors(f"Creating the cluster {wanted.compute}"):
            self.client.compute.begin_create_or_update(cluster).result()

    def register_environment(self, path: Path) -> None:
        """Register an environment unless the workspace has this version of it."""
        environment = load_environment(path)
        with _translating_errors(f"Registering environment {environment.name}"):
            try:
                self.client.environments.get(environment.name, version=environment.version)
            except ResourceNotFoundError:
                self.client.environments.create_or_update(environment)
                logger.info(f"Registered environment {environment.name} {environment.version}")

    def register_components(self, paths: Iterable[Path], version: str) -> None:
        """Register the components that the workspace does not have in this version."""
        for component in map(load_component, paths):
            with _translating_errors(f"Registering component {component.name}"):
                try:
                    self.client.components.get(component.name, version=version)
                except ResourceNotFoundError:
                    self.client.components.create_or_update(component, version=version)
                    logger.info(f"Registered component {component.name} {version}")
                else:
                    logger.info(f"Component {component.name} {version} is registered already")

    def describe_model(self, name: str, description: str, tags: Mapping[str, str]) -> None:
        """Give the latest version of a registered model a description, which is Markdown, and tags."""
        with _translating_errors(f"Describing the model {name}"):
            model = self.client.models.get(name, label="latest")
            model.description, model.tags = description, {**(model.tags or {}), **tags}
            self.client.models.create_or_update(model)

    def submit(self, job: Job) -> Job:
        """Upload what the workspace lacks, and start the job."""
        with _translating_errors("Submitting the job"):
            return cast(Job, self.client.jobs.create_or_update(job))

    def phases(self, job: Job) -> dict[str, str]:
        """Pipeline step, as `step: ` → its phase; the job itself has an empty name."""
        with _translating_errors(f"Watching job {job.name}"):
            children = (
                self.client.jobs.list(parent_job_name=job.name) if job.type == "pipeline" else ()
            )
            steps = {f"{child.display_name}: ": child.status for child in children if child}
            phases = {**steps, "": self.client.jobs.get(job.name).status}
        # As the service spells it: the client turns some into members of an enumeration.
        return {step: str(getattr(phase, "value", phase)) for step, phase in phases.items()}

    def download(self, job: Job, output: str, folder: Path) -> Path:
        """Download an output of a job to a new place below `folder`, which is returned."""
        with _translating_errors(f"Downloading the model of job {job.name}"):
            self.client.jobs.download(job.name, download_path=folder, output_name=output)
        return folder / "named-outputs" / output


class LogStream(Thread):
    """Prints the log of a job until it ends. A daemon thread: the client's own loop cannot be
    stopped."""

    def __init__(self, service: Service, job: Job) -> None:
        super().__init__(daemon=True)
        self._service, self._job = service, job
        self._problem = ""
        self.failure = ""  # why the job failed, in Azure's words
        self.start()

    def warn_of_problem(self, within_s: float) -> None:
        """Wait up to `within_s` for the end of the log; warn, once, if it cannot be shown."""
        self.join(within_s)
        if self._problem:
            logger.warning(f"The log cannot be shown here any more: {self._problem}")
            self._problem = ""

    def run(self) -> None:
        try:
            self._service.client.jobs.stream(str(self._job.name))
        except JobException as error:
            text = str(error.message)
            with suppress(ValueError, KeyError, TypeError):  # JSON, after some words
                text = json.loads(text[text.index("{") :])["error"]["message"]
            self.failure = _one_line(text).rstrip(".")
        except Exception as error:  # whatever it is, the job continues
            self._problem = _message_of(error)


@contextmanager
def _translating_errors(step: str) -> Iterator[None]:
    """Turn exceptions into a `ServiceError` of one sentence; standard error shows on a terminal
    only.
    """
    try:
        with nullcontext() if sys.stderr.isatty() else redirect_stderr(io.StringIO()):
            yield
    except exceptions.ClientAuthenticationError as error:
        reason = _one_line(str(error))
        if error.response is None:  # but a list of the credentials that were tried
            reason = next(iter(_SIGN_IN_CODE.findall(reason)), "")
        raise ServiceError(
            f"{step}: no credential works here. Sign in with `az login`, or set AZURE_CLIENT_ID,"
            f" AZURE_TENANT_ID and AZURE_CLIENT_SECRET. {reason[:500]}".rstrip()
        ) from error
    except (exceptions.ServiceRequestError, exceptions.ServiceResponseError) as error:
        text = f"{step}: Azure cannot be reached. {_message_of(error)}"
        raise ServiceError(text, is_transient=True) from error
    except exceptions.HttpResponseError as error:
        status = error.status_code or 0
        is_transient = status in (408, 429) or status >= 500
        raise ServiceError(
            f"{step}: Azure answers {status}. {_message_of(error)}", is_transient
        ) from error
    except (exceptions.AzureError, MlException, OSError) as error:
        raise ServiceError(f"{step}: {_message_of(error)}") from error


def _message_of(error: Exception) -> str:
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    text = _one_line(text.partition("\nCode: ")[0])  # what follows repeats it, in parts
    details = _DETAILS.search(text)
    return (details[1] if details else text)[:500]


def _one_line(text: str) -> str:
    """The text on one line, without colours and without the signatures of URLs."""
    return _SIGNATURE.sub(r"\1?…", " ".join(_COLOUR.sub("", text).split()))
