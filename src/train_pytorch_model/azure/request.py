"""What `submit` is asked for, and where: its options, what is wrong with them, a workspace and a
cluster.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, Self

import msgspec
import tyro

from train_pytorch_model.config import options, train_config
from train_pytorch_model.config.options import OptionalName, OptionalPath, Switch, shown_as
from train_pytorch_model.config.wording import flag, out_of_range
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.reading import MalformedFileError, read_json, read_yaml
from train_pytorch_model.image_classifier.architectures import (
    is_known,
    unknown_architecture_message,
)

DATA = ("untrained_model", "training_dataset", "validation_dataset")
EXPERIMENT = "train_pytorch_model"
DEFAULT_VM_SIZE = "Standard_NC4as_T4_v3"  # the cheapest size with a whole GPU
SERVERLESS = "serverless"  # nodes that Azure ML provides for a job, without a cluster
SCHEMES = ("azureml", "https", "wasbs", "abfss", "adl")
FORMS = "a folder, azureml:NAME:VERSION, azureml:NAME@LABEL, azureml://…, https://…, wasbs://… or abfss://…"
CURATED = re.compile(r"azureml-|//registries/azureml/", re.IGNORECASE)
_CLUSTER = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,254}", re.ASCII)
_VERSION = re.compile(r"[A-Za-z0-9][\w.-]*(:[\w.-]+|@[\w.-]+)")  # of an asset
_WORKSPACE = r"subscriptions/[^/]+/resource[gG]roups/[^/]+/(providers/[^/]+/)?workspaces/[^/]+"
_URI = re.compile(
    "azureml://("
    rf"({_WORKSPACE}/)?datastores/[^/]+/paths/.+"
    r"|jobs/[^/]+/outputs/[^/]+/paths/.+"
    rf"|(registries/[^/]+|locations/[^/]+/workspaces/[^/]+|{_WORKSPACE})"
    r"/(data|models|environments)/[^/]+/(versions|labels)/[^/]+/?)"
)
CONFIG = "config.json"
# Azure ML sets these in every job; they are read here too.
VARIABLES: Mapping[str, str] = {
    "subscription_id": "AZUREML_ARM_SUBSCRIPTION",
    "resource_group": "AZUREML_ARM_RESOURCEGROUP",
    "workspace_name": "AZUREML_ARM_WORKSPACE_NAME",
}

Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
OptionalData = Annotated[str | None, shown_as("DATA")]
Assignments = Annotated[tuple[str, ...], shown_as("NAME=VALUE")]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One training run: a single job on a given model, or a pipeline that initializes the model
    first."""

    training_dataset: OptionalData = None
    """Labelled images to train on."""
    validation_dataset: OptionalData = None
    (
        "Labelled images to validate on after each epoch, in the same categories as the training"
        " images."
    )
    untrained_model: OptionalData = None
    """Model directory to train, in a single job."""
    architecture: OptionalName = None
    (
        "Instead of --untrained-model: initialize and train a model of this architecture, in a"
        " pipeline."
    )
    pretrained: Switch = False
    """With --architecture: start from torchvision's best ImageNet weights."""
    parameters: tyro.conf.OmitArgPrefixes[train_config.TrainConfig] = field(
        default_factory=train_config.TrainConfig
    )

    compute: Name = "gpu-cluster"
    """AmlCompute cluster, created if it does not exist; or serverless, for nodes without a cluster.
    """
    vm_size: OptionalName = None
    (
        "VM size of a new cluster or of serverless nodes. By default Standard_NC4as_T4_v3, with"
        " one T4."
    )
    max_nodes: options.OptionalInt = None
    (
        "Maximum number of nodes of a new cluster, which releases idle ones. By default"
        " --instance-count."
    )
    low_priority: Switch = False
    (
        "Cheaper nodes that Azure may take away, for a new cluster or serverless; the job then"
        " resumes."
    )
    instance_count: int = 1
    """Number of nodes."""
    process_count_per_instance: int = 1
    (
        "Processes per node. 1 starts a process for each GPU of the node; more means exactly that"
        " many."
    )

    environment: OptionalName = None
    """Environment to use instead of the project's own: NAME:VERSION, NAME@latest or azureml://registries/…"""
    image: OptionalName = None
    """Docker image to use instead, with everything installed or with --conda-file."""
    conda_file: OptionalPath = None
    """Conda environment file to install on top of --image, or of the project's base image."""
    data_mode: Literal["ro_mount", "download"] = "ro_mount"
    """Whether the nodes mount data sets, or download them before the training."""
    environment_variables: Assignments = ()
    """Environment variables of the job, such as NCCL_DEBUG=INFO."""
    identity: Annotated[Literal["user", "managed"] | None, shown_as("{user,managed}")] = None
    (
        "Read data as you, or as the cluster's managed identity. By default with the keys of"
        " datastores."
    )

    tags: Assignments = ()
    """Tags of the job in the portal."""
    display_name: OptionalName = None
    """Name of the job in the portal."""
    experiment_name: Name = EXPERIMENT
    """Experiment under which the portal lists the job."""
    time_limit: options.OptionalInt = None
    """Minutes after which Azure ML ends the training. By default there is no limit."""
    wait_limit: options.OptionalInt = None
    (
        "Minutes to watch the job, which continues afterwards; 0 only submits. By default until it"
        " ends."
    )
    download: OptionalPath = None
    """Directory to download the trained model to; must be new or empty."""
    register: OptionalName = None
    """Register the trained model under this name, even if submit no longer watches the job."""
    register_components: Switch = False
    (
        "Register the components that have changed, for the designer; without data sets, submit"
        " nothing."
    )

    @property
    def is_serverless(self) -> bool:
        """Whether there is no cluster."""
        return self.compute == SERVERLESS

    @property
    def new_vm_size(self) -> str:
        """The VM size of a cluster to create, or of serverless nodes."""
        return self.vm_size or DEFAULT_VM_SIZE

    @property
    def new_max_nodes(self) -> int:
        """The maximum number of nodes of a cluster to create."""
        return self.instance_count if self.max_nodes is None else self.max_nodes

    @property
    def has_own_environment(self) -> bool:
        """Whether the job runs in the project's own environment."""
        return not (self.environment or self.image or self.conda_file)

    def data(self) -> dict[str, str | Path]:
        """Return the address or local folder of each input given, by its port.

        Raises `ParameterError`.
        """
        return {name: parse_data(text, name) for name in DATA if (text := getattr(self, name))}

    def check(self) -> None:
        """Raise `ParameterError` for what is wrong."""
        if not (self.training_dataset and self.validation_dataset):
            raise ParameterError("--training-dataset and --validation-dataset are required.")
        self.data()
        for name in ("environment_variables", "tags"):
            parse_assignments(getattr(self, name), name)
        if problems := [*self._problems(), *self.problems_of_environment()]:
            raise ParameterError("\n".join(problems))

    def _problems(self) -> Iterator[str]:
        if (self.untrained_model is None) == (self.architecture is None):
            yield (
                "Give either --untrained-model, to train that, or --architecture, to start from a"
                " new model"
                " of that architecture."
            )
        if self.architecture is not None and not is_known(self.architecture):
            yield f"--architecture {unknown_architecture_message(self.architecture)}"
        if self.pretrained and self.architecture is None:
            yield "--pretrained requires --architecture: a given model has its own weights."
        for option, name in (
            ("--experiment-name", self.experiment_name),
            ("--register", self.register),
        ):
            if name is not None and not _NAME.fullmatch(name):
                yield (
                    f"{option} {name!r} is not a valid name: expected a letter or digit, then"
                    " letters,"
                    " digits, _, - and ., up to 255 characters in all."
                )
        if self.time_limit is not None and self.time_limit < 1:
            yield f"The time limit should be at least a minute: --time-limit is {self.time_limit}."
        if not _CLUSTER.fullmatch(self.compute) or self.compute.lower() == "local":
            yield (
                f"--compute {self.compute!r} is not a cluster name: expected a letter, then"
                " letters, digits"
                f" and hyphens, and not local; or {SERVERLESS}."
            )
        for title, name in (
            ("Node count", "instance_count"),
            ("Process count per node", "process_count_per_instance"),
            ("Maximum number of nodes", "max_nodes"),
        ):
            if (value := getattr(self, name)) is not None and value < 1:
                yield out_of_range(title, "greater than 0", flag(name), value)
        if self.max_nodes is not None and self.is_serverless:
            yield f"--max-nodes is for a new cluster, and {SERVERLESS} compute has none."
        elif 0 < self.new_max_nodes < self.instance_count:
            yield (
                "Node count should be at most the cluster's maximum: --instance-count is"
                f" {self.instance_count}, --max-nodes {self.max_nodes}."
            )

    def problems_of_environment(self) -> Iterator[str]:
        """Yield what is wrong with the options that name an environment."""
        if self.environment is not None:
            name = self.environment.removeprefix("azureml:")
            given = f"--environment {name}"
            if CURATED.match(name):
                yield (
                    f"{given}: Azure's curated environments lack packages that training needs."
                    " Leave it out"
                    " to use the project's own, or give the image with --image and the packages"
                    " with"
                    " --conda-file."
                )
            elif name.startswith("//"):
                if not _URI.fullmatch(f"azureml:{name}"):
                    yield f"{given}: expected azureml://registries/REGISTRY/environments/NAME/versions/VERSION."
            elif not _VERSION.fullmatch(name):
                yield f"{given} names no version: expected NAME:VERSION or NAME@latest."
            if self.image or self.conda_file:
                yield (
                    "--environment names a complete environment: --image and --conda-file cannot be"
                    " combined"
                    " with it."
                )
        if self.image is not None and (
            not self.image or any(letter.isspace() for letter in self.image)
        ):
            yield f"--image {self.image!r} is not an image name."
        if self.conda_file is not None:
            try:
                if not isinstance(read_yaml(self.conda_file).get("dependencies"), list):
                    yield f"--conda-file {self.conda_file} has no list of dependencies."
            except MalformedFileError as error:
                yield f"--conda-file {self.conda_file}: {error}"

    def too_many_processes(self, vm_size: str, gpus: int) -> Iterator[str]:
        """Yield a problem if processes would share a GPU, which makes NCCL fail, or a node without
        GPUs.
        """
        if (count := self.process_count_per_instance) > max(gpus, 1):
            yield (
                "Process count per node should be at most the GPUs of a node:"
                " --process-count-per-instance"
                f" is {count}, and {vm_size} has {gpus}."
            )


def parse_data(text: str, name: str) -> str | Path:
    """An address in the cloud as it is; any other text as an absolute path.

    Raises `ParameterError`.
    """
    given = f"{flag(name)} {text}"
    scheme, separator, _ = text.partition("://")
    if separator:
        if scheme not in SCHEMES:
            raise ParameterError(
                f"{given}: {scheme}:// is not supported by Azure ML. Give {FORMS}."
            )
        if "?" in text:  # anyone who can read the job could read the signature
            raise ParameterError(
                f"{given.partition('?')[0]}?…: a signature does not belong in a job. Register the"
                " container as a datastore of the workspace, and give azureml://datastores/NAME/paths/PATH."
            )
        if scheme == "azureml" and not _URI.fullmatch(text):
            raise ParameterError(
                f"{given} is no address in Azure ML. Expected azureml://datastores/NAME/paths/PATH"
                " or"
                " azureml://registries/NAME/data/NAME/versions/VERSION."
            )
        return text
    if text.startswith("azureml:"):
        if not _VERSION.fullmatch(text.removeprefix("azureml:")):
            raise ParameterError(
                f"{given} names no version: expected azureml:NAME:VERSION or azureml:NAME@latest."
            )
        return text
    return Path(text).absolute()


def parse_assignments(texts: Sequence[str], name: str) -> dict[str, str]:
    """Parse the values `NAME=VALUE` of the parameter `name`. Raises `ParameterError`."""
    for text in texts:
        if text.find("=") < 1:
            raise ParameterError(f"{flag(name)} {text}: expected NAME=VALUE.")
    return {key: value for key, _, value in (text.partition("=") for text in texts)}


class Workspace(msgspec.Struct, frozen=True):
    """The address of a workspace, as in the portal's config.json, which may lack some of it.

        {"subscription_id": "…", "resource_group": "…", "workspace_name": "…"}

    Without --config, it is searched for in the working directory and its parents, and in the folder
    `.azureml` of each. With --config it takes precedence over variables, which may name another
    workspace.
    """

    subscription_id: str = ""
    resource_group: str = ""
    workspace_name: str = ""

    @classmethod
    def find(
        cls,
        flags: Mapping[str, str | None],
        config: Path | None,
        environment: Mapping[str, str],
        start: Path,
    ) -> Self:
        """Each of the names, from its first source; `config` replaces a search.

        Raises `ParameterError`.
        """
        names = {name: value for name, key in VARIABLES.items() if (value := environment.get(key))}
        if config is not None:
            names |= _read(config, f"--config {config}")
        names |= {name: value for name, value in flags.items() if value}
        if config is None and len(names) < len(VARIABLES):
            folders = (
                place for each in (start, *start.parents) for place in (each / ".azureml", each)
            )
            files = (
                _read(path, str(path)) for each in folders if (path := each / CONFIG).is_file()
            )
            # Many programs have a file of this name; one without any of the three entries belongs
            # to another.
            names = next(filter(None, files), {}) | names
        if missing := [
            f"\n  {flag(name)} or {VARIABLES[name]}" for name in VARIABLES if name not in names
        ]:
            raise ParameterError(
                f"The workspace is not fully specified. Missing are:{''.join(missing)}"
                f"\nOr download the workspace's {CONFIG} from the portal into this directory."
            )
        return cls(**names)

    def flags(self) -> str:
        """Return the workspace options of an `az ml` command, whose default subscription may be
        another.
        """
        # The name of a resource group may have brackets.
        subscription, group, name = map(shlex.quote, msgspec.structs.astuple(self))
        return f"--subscription {subscription} --resource-group {group} --workspace-name {name}"


@dataclass(frozen=True)
class Cluster:
    """A compute target that exists."""

    name: str
    kind: str  # Azure's type of compute target, in lower case: amlcompute is a cluster
    vm_size: str | None = None
    max_nodes: int | None = None
    is_low_priority: bool = False

    def problems(self, wanted: Submission, gpus: int | None) -> Iterator[str]:
        """Yield why this cluster cannot provide the nodes.

        `gpus` is the number per node; None if unknown.
        """
        count = wanted.instance_count
        if self.kind != "amlcompute" and count > 1:
            yield (
                f"Several nodes need an AmlCompute cluster: {self.name} is of type {self.kind}, and"
                f" --instance-count is {count}."
            )
        if self.max_nodes is not None and count > self.max_nodes:
            yield (
                f"Node count should be at most the cluster's maximum: --instance-count is {count},"
                " and"
                f" {self.name} has at most {self.max_nodes} nodes. Raise it with"
                f" `az ml compute update --name {self.name} --max-instances {count}`."
            )
        exists = f"{self.name} exists, and its nodes are"
        other = "does not fit. Leave it out, or name another cluster."
        if wanted.vm_size and self.vm_size and wanted.vm_size.lower() != self.vm_size.lower():
            yield f"{exists} {self.vm_size}: --vm-size {wanted.vm_size} {other}"
        if wanted.low_priority and not self.is_low_priority:
            yield f"{exists} not of low priority: --low-priority {other}"
        if gpus is not None and self.vm_size:
            yield from wanted.too_many_processes(self.vm_size, gpus)


def _read(path: Path, given: str) -> dict[str, str]:
    """Return the entries of a config.json; an error says what is `given`."""
    try:
        names = msgspec.structs.asdict(read_json(path, Workspace))
    except MalformedFileError as error:
        raise ParameterError(
            f"{given}: {error} It should hold subscription_id, resource_group and workspace_name."
        ) from error
    return {name: value for name, value in names.items() if value}
