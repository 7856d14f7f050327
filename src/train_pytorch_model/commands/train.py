"""`train`: train an image classifier, the main verb."""

import os
import shlex
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from train_pytorch_model import __version__
from train_pytorch_model.commands.next_steps import PROGRAM, scoring_commands
from train_pytorch_model.commands.processes import on_this_host, options_of, run_in_processes
from train_pytorch_model.commands.run_output import is_unfinished, recorded_failures
from train_pytorch_model.config.options import Switch
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.formats import trained_directory
from train_pytorch_model.formats.outputs import check_apart
from train_pytorch_model.formats.run_folder import OUTPUT_PARAMETER
from train_pytorch_model.inputs.opening import OpenedInputs, open_training_inputs
from train_pytorch_model.machine.azure_job import is_azure_job
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
    """Labelled images to validate on after each epoch, in the same categories as the training
    images."""
    trained_model: Path
    """Directory for the trained model; must be new or empty."""
    parameters: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    dry_run: Switch = False
    """Check everything and run three steps, but write nothing."""
    fresh: Switch = False
    """Start over instead of resuming an interrupted run with this output."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Check the inputs, then train in this process or in the workers that it starts."""
        rank = rank_of(os.environ)
        set_up(rank == 0, self.quiet)
        logger.info(f"Train PyTorch Model {__version__}")
        parameters = " ".join(
            f"{name} {value}" for name, value in self.parameters.as_flags().items()
        )
        with recorded_failures(self.trained_model, rank) if not self.dry_run else nullcontext():
            check_apart(
                self.trained_model, OUTPUT_PARAMETER, self.training_dataset, "training_dataset"
            )
            check_apart(
                self.trained_model, OUTPUT_PARAMETER, self.validation_dataset, "validation_dataset"
            )
            arguments = ["train", *options_of(self)]
            run_in_processes(self._train, self._open, arguments, {"parameters": parameters})

    def _open(self) -> OpenedInputs | None:
        """Open and check the inputs, and check the output; None if this same command has completed
        it.
        """
        datasets = self.training_dataset, self.validation_dataset
        inputs = open_training_inputs(self.untrained_model, *datasets, self.parameters.epochs)
        return (
            inputs
            if is_unfinished(self.trained_model, inputs, self.parameters, self.fresh)
            else None
        )

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
            train(self.parameters, inputs, self.trained_model, world, self.fresh)
            self._say_what_next()

    def _say_what_next(self) -> None:
        if (report := self.trained_model / trained_directory.REPORT).exists():
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
            f"{PROGRAM} evaluate --trained-model {model} --dataset FOLDER --output evaluation",
            "# the curves of all runs",
            "mlflow ui",
            "# an HTTP server",
            f"mlflow models serve --model-uri {model} --env-manager local --port 5001",
        ):
            logger.info(f"  {command}")
