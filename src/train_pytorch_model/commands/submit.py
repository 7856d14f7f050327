"""`submit`: train on an Azure ML cluster, from a workstation."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

import tyro

from train_pytorch_model.commands.program import OptionalInt, OptionalName, OptionalPath, Switch
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.inputs.opening import (
    TRAINING_DATASET,
    UNTRAINED_MODEL,
    VALIDATION_DATASET,
    open_training_datasets,
    open_training_inputs,
)
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.submission.cluster import Nodes
from train_pytorch_model.submission.request import (
    EXPERIMENT,
    DataMode,
    Environment,
    Identity,
    Reference,
    Submission,
    parse_assignments,
)
from train_pytorch_model.submission.workspace import Workspace
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ParameterError

Assignments = Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=VALUE", help_behavior_hint="")]
Name = Annotated[str, tyro.conf.arg(metavar="NAME")]
OptionalIdentity = Annotated[Identity | None, tyro.conf.arg(metavar="{user,managed}", help_behavior_hint="")]
OptionalData = Annotated[str | None, tyro.conf.arg(metavar="DATA", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Train on an Azure ML cluster, from a workstation that is signed in.

    DATA is azureml:NAME:VERSION, azureml://…, https://… or a local folder, which is uploaded."""

    EXAMPLE: ClassVar[str] = (
        "--architecture resnet50 --pretrained --training-dataset flowers/training"
        " --validation-dataset flowers/validation --register flowers --download trained"
    )

    training_dataset: OptionalData = None
    """Labelled images to train on."""

    validation_dataset: OptionalData = None
    """Labelled images to validate on after each epoch, in the same categories as the training images."""

    untrained_model: OptionalData = None
    """Model directory to train, in a single job."""

    architecture: OptionalName = None
    """Instead of --untrained-model: initialize and train a model of this architecture, in a pipeline."""

    pretrained: Switch = False
    """With --architecture: start from torchvision's best ImageNet weights."""

    parameters: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)

    compute: Name = "gpu-cluster"
    """AmlCompute cluster, created if it does not exist; or serverless, for nodes without a cluster."""

    vm_size: OptionalName = None
    """VM size of a new cluster or of serverless nodes. By default Standard_NC4as_T4_v3, with one T4."""

    max_nodes: OptionalInt = None
    """Maximum number of nodes of a new cluster, which releases idle ones. By default --instance-count."""

    low_priority: Switch = False
    """Cheaper nodes that Azure may take away, for a new cluster or serverless; the job then resumes."""

    instance_count: int = 1
    """Number of nodes."""

    process_count_per_instance: int = 1
    """Processes per node. 1 starts a process for each GPU of the node; more means exactly that many."""

    environment: OptionalName = None
    """Environment to use instead of the project's own: NAME:VERSION, NAME@latest or azureml://registries/…"""

    image: OptionalName = None
    """Docker image to use instead, with everything installed or with --conda-file."""

    conda_file: OptionalPath = None
    """Conda environment file to install on top of --image, or of the project's base image."""

    data_mode: DataMode = "ro_mount"
    """Whether the nodes mount data sets, or download them before the training."""

    environment_variables: Assignments = ()
    """Environment variables of the job, such as NCCL_DEBUG=INFO."""

    identity: OptionalIdentity = None
    """Read data as you, or as the cluster's managed identity. By default with the keys of datastores."""

    tags: Assignments = ()
    """Tags of the job in the portal."""

    display_name: OptionalName = None
    """Name of the job in the portal."""

    experiment_name: Name = EXPERIMENT
    """Experiment under which the portal lists the job."""

    time_limit: OptionalInt = None
    """Minutes after which Azure ML ends the training. By default there is no limit."""

    wait_limit: OptionalInt = None
    """Minutes to watch the job, which continues afterwards; 0 only submits. By default until it ends."""

    download: OptionalPath = None
    """Directory to download the trained model to; must be new or empty."""

    register: OptionalName = None
    """Register the trained model under this name, even if submit no longer watches the job."""

    register_components: Switch = False
    """Register the components that have changed, for the designer; without data sets, submit nothing."""

    dry_run: OptionalPath = None
    """Send nothing; write job.yaml, for az ml job create, and its code to this directory."""

    subscription_id: OptionalName = None
    """Subscription of the workspace. By default AZUREML_ARM_SUBSCRIPTION, else from config.json."""

    resource_group: OptionalName = None
    """Resource group of the workspace. By default AZUREML_ARM_RESOURCEGROUP, else from config.json."""

    workspace_name: OptionalName = None
    """Name of the workspace. By default AZUREML_ARM_WORKSPACE_NAME, else from config.json."""

    config: OptionalPath = None
    """config.json of the workspace; overrides those variables and one found in or above this directory."""

    quiet: Switch = False
    """Print warnings, errors and the job's log only."""

    def run(self) -> None:
        """Check everything, then submit the job and watch it, or write it for --dry-run."""
        set_up(is_main=True, quiet=self.quiet)
        if self.register_components and not (self.training_dataset or self.validation_dataset):
            self._register()
            return
        submission = self._submission()
        self._check_outputs()
        workspace = None if self.dry_run else self._workspace()
        _check_local_data(submission)

        from train_pytorch_model.stories import submit as submitting

        if self.dry_run:
            submitting.write(submission, self.dry_run)
        elif workspace:
            submitting.submit(submission, workspace, self.register_components, self.wait_limit, self.download)

    def _register(self) -> None:
        environment, workspace = self._environment(), self._workspace()
        if problems := "\n".join(environment.problems()):
            raise ParameterError(problems)
        from train_pytorch_model.stories import submit as submitting

        submitting.register(environment, workspace)

    def _environment(self) -> Environment:
        return Environment(self.environment, self.image, self.conda_file)

    def _submission(self) -> Submission:
        untrained = self.untrained_model
        if not (self.training_dataset and self.validation_dataset):
            raise ParameterError("--training-dataset and --validation-dataset are required.")
        return Submission(
            untrained_model=Reference.parse(untrained, "untrained_model") if untrained else None,
            architecture=self.architecture,
            pretrained=self.pretrained,
            training_dataset=Reference.parse(self.training_dataset, "training_dataset"),
            validation_dataset=Reference.parse(self.validation_dataset, "validation_dataset"),
            parameters=self.parameters,
            nodes=Nodes(
                cluster=self.compute,
                instance_count=self.instance_count,
                process_count=self.process_count_per_instance,
                vm_size=self.vm_size,
                max_nodes=self.max_nodes,
                low_priority=self.low_priority,
            ),
            environment=self._environment(),
            data_mode=self.data_mode,
            environment_variables=parse_assignments(self.environment_variables, "environment_variables"),
            identity=self.identity,
            tags=parse_assignments(self.tags, "tags"),
            display_name=self.display_name,
            experiment_name=self.experiment_name,
            register=self.register,
            time_limit_min=self.time_limit,
        )

    def _check_outputs(self) -> None:
        if self.wait_limit is not None and self.wait_limit < 0:
            raise ParameterError(f"The wait limit should not be negative: --wait-limit is {self.wait_limit}.")
        if self.wait_limit == 0 and self.download:
            raise ParameterError("--wait-limit 0 only submits: there is nothing to --download yet.")
        for name, path in (("download", self.download), ("dry_run", self.dry_run)):
            if path is not None:
                check_output(path, name)

    def _workspace(self) -> Workspace:
        flags = {
            "subscription_id": self.subscription_id,
            "resource_group": self.resource_group,
            "workspace_name": self.workspace_name,
        }
        return Workspace.find(flags, self.config, os.environ, Path.cwd())


def _check_local_data(submission: Submission) -> None:
    """Find mistakes that a node would report only after minutes. Data in the cloud is not checked."""
    model = submission.untrained_model.local if submission.untrained_model else None
    training, validation = submission.training_dataset.local, submission.validation_dataset.local
    if training and validation and model:
        epochs = submission.parameters.epochs
        for warning in open_training_inputs(model, training, validation, epochs).warnings:
            logger.warning(warning)
        return
    if model:
        open_model_directory(model, UNTRAINED_MODEL)
    if training and validation:
        open_training_datasets(training, validation)
        return
    for directory, port in ((training, TRAINING_DATASET), (validation, VALIDATION_DATASET)):
        if directory:
            open_image_directory(directory, port).require_labels()
