"""A workspace of Azure ML, through azure-ai-ml, which takes seconds to import."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from azure.ai.ml import MLClient, load_component, load_environment, load_job, load_model
from azure.ai.ml.entities import AmlCompute, Job
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from msgspec.structs import astuple

from train_pytorch_model.azure.client_errors import translating_errors
from train_pytorch_model.azure.cluster import Cluster
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.azure.workspace import Workspace
from train_pytorch_model.errors import ParameterError, ServiceError
from train_pytorch_model.machine.console import logger

__all__ = ["Job", "Service", "load_valid_job"]

# Before an idle node of a cluster created here is released: a second trial finds it warm.
IDLE_S = 600


def load_valid_job(path: Path) -> Job:
    """Load a job's YAML and validate it with azure-ai-ml, offline. Raises `ServiceError`."""
    _silence_client()
    with translating_errors("Reading the job"):
        job = load_job(source=path)
        # As create_or_update does. The public way, `client.jobs.validate`, needs a workspace.
        result = cast(Any, job)._validate()
        if not result.passed:
            raise ServiceError(f"azure-ai-ml refuses the job: {result.error_messages}")
    return job


def _silence_client() -> None:
    """Hide what the client logs: it warns of its own classes, and its errors are raised anyway."""
    for name in ("azure", "azure.ai.ml"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextmanager
def _by_whoever_is_first() -> Iterator[None]:
    """Take it for done, in a `with`, if another submission has just made the same.

    Versions follow the content. Any other conflict is an error.
    """
    try:
        yield
    except ResourceExistsError as error:
        if "already exist" not in str(error):
            raise


class Service:
    """A workspace. Every method raises `ServiceError` if Azure cannot be reached or refuses."""

    def __init__(self, workspace: Workspace) -> None:
        """Open a workspace and try the credential.

        Raises `ParameterError` if there is no such workspace.
        """
        _silence_client()
        subscription, group, name = astuple(workspace)
        with translating_errors(f"Opening workspace {name}"):
            self.client = MLClient(
                DefaultAzureCredential(),
                subscription,
                group,
                name,
                enable_telemetry=False,
                show_progress=sys.stderr.isatty(),
            )
            try:
                location = self.client.workspaces.get(name).location
            except ResourceNotFoundError as error:
                raise ParameterError(
                    f"There is no workspace {name} in resource group {group} of subscription"
                    f" {subscription}, or you have no access to it."
                ) from error
        logger.info(f"Workspace {name}, {location}")

    def find_cluster(self, name: str) -> Cluster | None:
        """Return a cluster; None if there is none of this name."""
        with translating_errors(f"Looking for the cluster {name}"):
            try:
                compute = self.client.compute.get(name)
            except ResourceNotFoundError:
                return None
        # Azure says LowPriority, and the client takes low_priority.
        tier = str(getattr(compute, "tier", "")).lower().replace("_", "")
        return Cluster(
            name=name,
            kind=str(compute.type).lower(),
            vm_size=getattr(compute, "size", None),
            max_nodes=getattr(compute, "max_instances", None),
            is_low_priority=tier == "lowpriority",
        )

    def gpus_by_vm_size(self) -> Mapping[str, int]:
        """Return VM size in lower case → number of GPUs, for the region of the workspace."""
        with translating_errors("Looking for VM sizes"):
            sizes = self.client.compute.list_sizes()
            return {str(size.name).lower(): int(size.gpus or 0) for size in sizes}

    def create_cluster(self, submission: Submission) -> None:
        """Create the cluster that a submission names.

        It costs nothing while no job runs: it starts empty and releases idle nodes.
        """
        cluster = AmlCompute(
            name=submission.compute,
            size=submission.new_vm_size,
            min_instances=0,
            max_instances=submission.new_max_nodes,
            idle_time_before_scale_down=IDLE_S,
            tier="low_priority" if submission.low_priority else "dedicated",
        )
        with translating_errors(f"Creating the cluster {submission.compute}"):
            self.client.compute.begin_create_or_update(cluster).result()

    def register_environment(self, path: Path) -> None:
        """Register an environment unless the workspace has this version of it."""
        environment = load_environment(path)
        with translating_errors(f"Registering environment {environment.name}"):
            try:
                self.client.environments.get(environment.name, version=environment.version)
            except ResourceNotFoundError:
                with _by_whoever_is_first():
                    self.client.environments.create_or_update(environment)
                logger.info(f"Registered environment {environment.name} {environment.version}")

    def register_components(self, paths: Iterable[Path], version: str) -> None:
        """Register the components that the workspace does not have in this version."""
        for component in map(load_component, paths):
            with translating_errors(f"Registering component {component.name}"):
                try:
                    self.client.components.get(component.name, version=version)
                except ResourceNotFoundError:
                    with _by_whoever_is_first():
                        self.client.components.create_or_update(component, version=version)
                    logger.info(f"Registered component {component.name} {version}")
                else:
                    logger.info(f"Component {component.name} {version} is registered already")

    def describe_model(self, name: str, description: str, tags: Mapping[str, str]) -> None:
        """Give the latest version of a registered model a description, in Markdown, and tags."""
        with translating_errors(f"Describing the model {name}"):
            model = self.client.models.get(name, label="latest")
            model.description = description
            model.tags = {**(model.tags or {}), **tags}
            self.client.models.create_or_update(model)

    def register_model(self, path: Path, name: str) -> str:
        """Register the model that a YAML file describes; return `azureml:NAME:VERSION`."""
        with translating_errors(f"Registering the model {name}"):
            model = load_model(path, params_override=[{"name": name}])
            registered = self.client.models.create_or_update(model)
            return f"azureml:{registered.name}:{registered.version}"

    def find_job(self, name: str) -> Job:
        """Return a job. Raises `ParameterError` if there is none of this name."""
        with translating_errors(f"Looking for job {name}"):
            try:
                return cast(Job, self.client.jobs.get(name))
            except ResourceNotFoundError as error:
                raise ParameterError(
                    f"There is no job {name} in workspace {self.client.workspace_name}."
                ) from error

    def cancel(self, job: Job) -> None:
        """Ask for the end of a job, which takes minutes."""
        with translating_errors(f"Cancelling job {job.name}"):
            self.client.jobs.begin_cancel(str(job.name))

    def submit(self, job: Job) -> Job:
        """Upload what the workspace lacks, and start the job."""
        with translating_errors("Submitting the job"):
            return cast(Job, self.client.jobs.create_or_update(job))

    def phases(self, job: Job) -> dict[str, str]:
        """Return pipeline step, as `step: ` → its phase; the job itself has an empty name."""
        phases = {}
        with translating_errors(f"Watching job {job.name}"):
            if job.type == "pipeline":
                for step in self.client.jobs.list(parent_job_name=job.name):
                    if step:
                        phases[f"{step.display_name}: "] = step.status
            phases[""] = self.client.jobs.get(job.name).status
        # As the service spells it: the client turns some into members of an enumeration.
        return {step: str(getattr(phase, "value", phase)) for step, phase in phases.items()}

    def download(self, job: Job, output: str, folder: Path) -> Path:
        """Download an output of a job to a new folder below `folder`; return its path."""
        with translating_errors(f"Downloading the model of job {job.name}"):
            self.client.jobs.download(job.name, download_path=folder, output_name=output)
        return folder / "named-outputs" / output
