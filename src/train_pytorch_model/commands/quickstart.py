"""`quickstart`: from nothing to a trained model and its scores."""

import shlex
from dataclasses import dataclass
from pathlib import Path

import tyro

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.next_steps import activation_commands
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.train import Train
from train_pytorch_model.formats.outputs import check_output, owning_directory
from train_pytorch_model.machine.command_lines import COMMAND
from train_pytorch_model.machine.console import logger, set_up

OUTPUT = "output"

# Half the time of 16: at 32 px the weights, not the images, make up the cost of a step.
BATCH_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Train and score on scikit-learn's handwritten digits, in about a minute on a CPU."""

    EXAMPLE = ""

    output: Path = Path("quickstart")
    """Directory for images, models and scores; must be new or empty."""

    def run(self) -> None:
        """Write the images, then run three verbs by their command lines."""
        set_up()
        check_output(self.output, OUTPUT)
        with owning_directory(self.output, OUTPUT):
            self._run_verbs()

    def _run_verbs(self) -> None:
        logger.info("1. Writing handwritten digits as image directories")
        from train_pytorch_model.datasets.digits import write_digits

        training, validation, held_out = map(str, write_digits(self.output))
        untrained = str(self.output / "untrained_model")
        trained = str(self.output / "trained_model")
        scores = str(self.output / "scores")

        logger.info("\n2. Initializing a ResNet-18")
        _type(InitModel, "init-model", "--architecture", "resnet18", "--output", untrained)

        logger.info("\n3. Training")
        datasets = ("--training-dataset", training, "--validation-dataset", validation)
        options = ("--trained-model", trained, "--batch-size", str(BATCH_SIZE))
        _type(Train, "train", "--untrained-model", untrained, *datasets, *options)

        logger.info("\n4. Scoring held-out images")
        inputs = ("--trained-model", trained, "--dataset", held_out)
        _type(Score, "score", *inputs, "--scored-dataset", scores)

        logger.info(
            "\n5. Next: your own images, in one folder per category, such as"
            " photographs/daisy/1.jpg:"
        )
        for command in (*activation_commands(), f"{COMMAND} fit photographs"):
            logger.info(f"  {command}")


def _type(command: type[InitModel] | type[Train] | type[Score], verb: str, *arguments: str) -> None:
    """Show a command line, and run it."""
    logger.info(f"$ {COMMAND} {shlex.join([verb, *arguments])}")
    tyro.cli(command, args=arguments).run()
