"""`submit`: train on an Azure ML cluster, from a workstation."""

import os
from dataclasses import dataclass
from pathlib import Path

from train_pytorch_model.azure.rules import check_submission, problems_of_environment
from train_pytorch_model.azure.submission import DATA, Submission
from train_pytorch_model.azure.workspace import VARIABLES, Workspace
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
            self._register_components()
        else:
            self._submit()

    def _register_components(self) -> None:
        workspace = self._workspace()
        problems = "\n".join(problems_of_environment(self))
        if problems:
            raise ParameterError(problems)

        from train_pytorch_model.stories.register_components import register_components

        register_components(self, workspace)

    def _submit(self) -> None:
        check_submission(self)
        self._check_limit_and_outputs()
        if self.dry_run is not None:
            self._check_local_data()
            from train_pytorch_model.stories.write_job import write_job

            write_job(self, self.dry_run)
        else:
            workspace = self._workspace()
            self._check_local_data()
            from train_pytorch_model.stories.submit import submit

            submit(self, workspace)

    def _check_limit_and_outputs(self) -> None:
        if self.wait_limit is not None and self.wait_limit < 0:
            raise ParameterError(
                f"The wait limit should not be negative: --wait-limit is {self.wait_limit}."
            )
        if self.wait_limit == 0 and self.download:
            raise ParameterError("--wait-limit 0 only submits: there is nothing to --download yet.")
        if self.download is not None:
            check_output(self.download, "download")
        if self.dry_run is not None:
            check_output(self.dry_run, "dry_run")

    def _workspace(self) -> Workspace:
        options = {name: getattr(self, name) for name in VARIABLES}
        return Workspace.find(options, self.config, os.environ, Path.cwd())

    def _check_local_data(self) -> None:
        """Find mistakes that a node would report only after minutes.

        Data in the cloud is not checked.
        """
        local = {name: path for name, path in self.data().items() if isinstance(path, Path)}
        model, training, validation = map(local.get, DATA)
        if training and validation and model:
            epochs = self.parameters.epochs
            inputs = opening.open_training_inputs(model, training, validation, epochs)
            for warning in inputs.warnings:
                logger.warning(warning)
            return
        if model:
            open_model_directory(model, opening.UNTRAINED_MODEL)
        _check_datasets(training, validation)


def _check_datasets(training: Path | None, validation: Path | None) -> None:
    """Open the data sets that are here, together if both are."""
    if training and validation:
        opening.open_training_datasets(training, validation)
    elif training:
        open_image_directory(training, opening.TRAINING_DATASET).require_labels()
    elif validation:
        open_image_directory(validation, opening.VALIDATION_DATASET).require_labels()
