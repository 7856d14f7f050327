"""What `submit` is asked for: its options, as plain values."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from train_pytorch_model.azure.references import parse_data
from train_pytorch_model.config import options, train_config
from train_pytorch_model.config.options import OptionalName, OptionalPath, Switch, shown_as

DATA = ("untrained_model", "training_dataset", "validation_dataset")
EXPERIMENT = "train_pytorch_model"
DEFAULT_VM_SIZE = "Standard_NC4as_T4_v3"  # the cheapest size with a whole GPU
SERVERLESS = "serverless"  # nodes that Azure ML provides for a job, without a cluster

Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
OptionalData = Annotated[str | None, shown_as("DATA")]
Assignments = Annotated[tuple[str, ...], shown_as("NAME=VALUE")]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """One training run: a single job, or a pipeline that initializes the model first."""

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
        "Cheaper nodes that Azure may take away; the job then resumes. Of the Spot tier with"
        " serverless; of a new cluster, which Azure may refuse since 2026-03-31."
    )
    instance_count: int = 1
    """Number of nodes."""
    process_count_per_instance: int = 1
    (
        "Processes per node. 1 starts a process for each GPU of the node; more means exactly that"
        " many."
    )

    environment: OptionalName = None
    (
        "Environment to use instead of the project's own: NAME:VERSION, NAME@latest or"
        " azureml://registries/…"
    )
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
        """Return the address or local folder of each input that is named, by its port.

        Raises `ParameterError`.
        """
        texts = {name: getattr(self, name) for name in DATA}
        return {name: parse_data(text, name) for name, text in texts.items() if text}
