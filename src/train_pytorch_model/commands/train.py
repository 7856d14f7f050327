"""`train`: train an image classifier, the main verb."""

import os
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from train_pytorch_model import __version__
from train_pytorch_model.commands.next_steps import scoring_commands
from train_pytorch_model.config.options import Switch, arguments_of
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.distributed.processes import on_this_host, run_in_processes
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.failed_run import recorded_failures
from train_pytorch_model.formats.outputs import check_apart
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER
from train_pytorch_model.inputs.opening import OpenedInputs, open_training_inputs
from train_pytorch_model.inputs.run_output import prepare_output
from train_pytorch_model.machine.azure_job import is_azure_job
from train_pytorch_model.machine.command_lines import COMMAND
from train_pytorch_model.machine.console import log_file, logger, set_up
from train_pytorch_model.machine.launch import rank_of

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train an image classifier on a folder of images.

    Starts one process per GPU by default. Also runs under torchrun and as an Azure ML job."""

    EXAMPLE = (
        "--untrained-model untrained --training-dataset flowers/training"
        " --validation-dataset flowers/validation --trained-model trained"
    )

    untrained_model: Path
    """Model directory to train, as written by init-model. A trained one is trained further."""
    training_dataset: Path
    """Labelled images to train on: one folder per category, or an ImageDirectory."""
    validation_dataset: Path
    (
        "Labelled images to validate on after each epoch, in the same categories as the training"
        " images."
    )
    trained_model: Path
    """Directory for the trained model; must be new or empty."""
    parameters: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    dry_run: Switch = False
    """Check everything and run three steps, but write nothing."""
    fresh: Switch = False
    """Start over instead of resuming an interrupted run with this output."""
    overwrite: Switch = False
    """Replace the model in the output, if it is whole, by that of other images or options."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the inputs, then train in this process or in the workers that it starts."""
        rank = rank_of(os.environ)
        set_up(rank == 0, self.quiet)
        logger.info(f"Train PyTorch Model {__version__}")
        flags = self.parameters.as_flags().items()
        same = {"parameters": " ".join(f"{name} {value}" for name, value in flags)}
        arguments = ["train", *arguments_of(self)]
        with nullcontext() if self.dry_run else recorded_failures(self.trained_model, rank):
            self._check_apart()
            run_in_processes(self._train, self._open, arguments, same)

    def _check_apart(self) -> None:
        """Raise `OutputDirectoryError` if the output is within a dataset."""
        for name in ("training_dataset", "validation_dataset"):
            check_apart(self.trained_model, OUTPUT_PARAMETER, getattr(self, name), name)

    def _open(self) -> OpenedInputs | None:
        """Open the inputs and prepare the output; None if this same command has completed it."""
        inputs = open_training_inputs(
            self.untrained_model,
            self.training_dataset,
            self.validation_dataset,
            self.parameters.epochs,
        )
        if prepare_output(
            self.trained_model, inputs, self.parameters, self.fresh, overwrite=self.overwrite
        ):
            return inputs
        return None

    def _train(self, inputs: OpenedInputs, world: "World") -> None:
        from train_pytorch_model.stories.train import dry_run, train

        inputs = replace(
            inputs,
            model=on_this_host(inputs.model, self.untrained_model),
            training=on_this_host(inputs.training, self.training_dataset),
            validation=on_this_host(inputs.validation, self.validation_dataset),
        )
        # One file for each training process, which the portal shows; not for a node's launcher,
        # whose rank is that of a node: the files of all nodes end up in one folder.
        log = Path("logs") / f"rank_{world.rank}.log"
        with log_file(log) if is_azure_job() else nullcontext():
            if self.dry_run:
                dry_run(self.parameters, inputs, world)
                return
            train(
                self.parameters,
                inputs,
                self.trained_model,
                world,
                self.fresh,
                overwrite=self.overwrite,
            )
            self._log_next_steps()

    def _log_next_steps(self) -> None:
        report = self.trained_model / trained_directory.REPORT
        if report.exists():
            logger.info(f"Report on the training and the model: {report}")
        if is_azure_job():
            logger.info(
                "The trained model is the output of this job, ready to be registered and deployed."
            )
            return
        logger.info(f"The trained model is in {self.trained_model}. Next steps:")
        model = shlex.quote(str(self.trained_model))
        for command in (
            *scoring_commands(self.trained_model),
            "# FOLDER: labelled images held out from training",
            f"{COMMAND} evaluate --trained-model {model} --dataset FOLDER --output evaluation",
            "# the curves of all runs",
            "mlflow ui",
            "# an HTTP server",
            f"mlflow models serve --model-uri {model} --env-manager local --port 5001",
        ):
            logger.info(f"  {command}")
