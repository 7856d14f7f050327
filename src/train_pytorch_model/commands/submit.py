"""`submit`: train on an Azure ML cluster, from a workstation."""

import os
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.azure.request import DATA, VARIABLES, Submission, Workspace
from train_pytorch_model.config.options import OptionalName, OptionalPath, Switch
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.model_directory import open_model_directory
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.inputs import opening
from train_pytorch_model.machine.console import logger, set_up


@dataclass(frozen=True, kw_only=True)
class Submit(Submission):
    """Train on an Azure ML cluster, from a workstation that is signed in.

    DATA is azureml:NAME:VERSION, azureml://…, https://… or a local folder, which is uploaded."""

    EXAMPLE = (
        "--architecture resnet50 --pretrained --training-dataset flowers/training"
        " --validation-dataset flowers/validation --register flowers --download trained"
    )

    dry_run: OptionalPath = None
    """Send nothing; write job.yaml, for az ml job create, and its code to this directory."""
    subscription_id: OptionalName = None
    """Subscription of the workspace. By default AZUREML_ARM_SUBSCRIPTION, else from config.json."""
    resource_group: OptionalName = None
    """Resource group of the workspace. By default AZUREML_ARM_RESOURCEGROUP, else from config.json.
    """
    workspace_name: OptionalName = None
    """Name of the workspace. By default AZUREML_ARM_WORKSPACE_NAME, else from config.json."""
    config: OptionalPath = None
    (
        "config.json of the workspace; overrides those variables and one found in or above this"
        " directory."
    )
    quiet: Switch = False
    """Print warnings, errors and the job's log only."""

    def run(self) -> None:
        """Check everything, then submit the job and watch it, or write it for --dry-run."""
        set_up(quiet=self.quiet)
        if self.register_components and not (self.training_dataset or self.validation_dataset):
            workspace = self._workspace()
            if problems := "\n".join(self.problems_of_environment()):
                raise ParameterError(problems)
            from train_pytorch_model.stories.submit import register

            register(self, workspace)
            return
        self.check()
        if self.wait_limit is not None and self.wait_limit < 0:
            raise ParameterError(
                f"The wait limit should not be negative: --wait-limit is {self.wait_limit}."
            )
        if self.wait_limit == 0 and self.download:
            raise ParameterError("--wait-limit 0 only submits: there is nothing to --download yet.")
        for name, path in (("download", self.download), ("dry_run", self.dry_run)):
            if path is not None:
                check_output(path, name)
        target = self.dry_run or self._workspace()
        self._check_local_data()

        from train_pytorch_model.stories.submit import submit, write

        if isinstance(target, Path):
            write(self, target)
        else:
            submit(self, target)

    def _workspace(self) -> Workspace:
        flags = {name: getattr(self, name) for name in VARIABLES}
        return Workspace.find(flags, self.config, os.environ, Path.cwd())

    def _check_local_data(self) -> None:
        """Find mistakes that a node would report only after minutes.

        Data in the cloud is not checked.
        """
        local = {name: place for name, place in self.data().items() if isinstance(place, Path)}
        model, training, validation = map(local.get, DATA)
        if training and validation and model:
            epochs = self.parameters.epochs
            for warning in opening.open_training_inputs(
                model, training, validation, epochs
            ).warnings:
                logger.warning(warning)
            return
        if model:
            open_model_directory(model, opening.UNTRAINED_MODEL)
        if training and validation:
            opening.open_training_datasets(training, validation)
        elif training:
            open_image_directory(training, opening.TRAINING_DATASET).require_labels()
        elif validation:
            open_image_directory(validation, opening.VALIDATION_DATASET).require_labels()
