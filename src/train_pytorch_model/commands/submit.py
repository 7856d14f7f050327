"""`submit`: train on an Azure ML cluster, from a workstation."""

from dataclasses import dataclass

from train_pytorch_model.azure.local_data import check_local_data
from train_pytorch_model.azure.rules import check_submission, problems_of_environment
from train_pytorch_model.azure.submission import Submission
from train_pytorch_model.azure.workspace_options import WorkspaceOptions
from train_pytorch_model.config.options import OptionalInt, OptionalPath, Switch
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.machine.console import set_up


@dataclass(frozen=True, kw_only=True)
class Submit(WorkspaceOptions, Submission):
    """Train on an Azure ML cluster, from a workstation that is signed in.

    DATA is azureml:NAME:VERSION, azureml://…, https://… or a local folder, which is uploaded."""

    EXAMPLE = (
        "--architecture resnet50 --pretrained --training-dataset flowers/training"
        " --validation-dataset flowers/validation --register flowers --download trained"
    )

    wait_limit: OptionalInt = None
    (
        "Minutes to watch the job, which continues afterwards; 0 only submits. By default until it"
        " ends."
    )
    download: OptionalPath = None
    """Directory to download the trained model to; must be new or empty."""
    dry_run: OptionalPath = None
    """Send nothing; write job.yaml, for az ml job create, and its code to this directory."""
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
        workspace = self.workspace()
        problems = "\n".join(problems_of_environment(self))
        if problems:
            raise ParameterError(problems)

        from train_pytorch_model.stories.register_components import register_components

        register_components(self, workspace)

    def _submit(self) -> None:
        check_submission(self)
        self._check_limit_and_outputs()
        if self.dry_run is not None:
            check_local_data(self)
            from train_pytorch_model.stories.write_job import write_job

            write_job(self, self.dry_run)
        else:
            workspace = self.workspace()
            check_local_data(self)
            from train_pytorch_model.stories.submit import submit

            submit(self, workspace, self.wait_limit, self.download)

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
