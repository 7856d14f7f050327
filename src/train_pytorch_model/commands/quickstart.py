"""`quickstart`: a complete run on sample images, in about a minute."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import tyro

from train_pytorch_model.commands.init_model import InitModel
from train_pytorch_model.commands.program import Command
from train_pytorch_model.commands.score import Score
from train_pytorch_model.commands.train import PROGRAM, Train, activation_commands
from train_pytorch_model.formats.outputs import check_output, owning_directory
from train_pytorch_model.machine.console import logger, set_up

VERBS: Mapping[str, type[Command]] = {"init-model": InitModel, "train": Train, "score": Score}
BATCH_SIZE = 32  # half the time of 16: at 32 px the weights, not the images, make up the cost of a step


@dataclass(frozen=True, kw_only=True)
class Quickstart:
    """Train and score on scikit-learn's handwritten digits, in about a minute on a CPU."""

    EXAMPLE = ""

    output: Path = Path("quickstart")
    """Directory for images, models and scores; must be new or empty."""

    def run(self) -> None:
        """Write the images, then run the three verbs by their command lines."""
        set_up()
        check_output(self.output, "output")
        with owning_directory(self.output, "output"):
            logger.info("1. Writing handwritten digits as image directories")
            from train_pytorch_model.datasets.digits import write_digits

            training, validation, held_out = map(str, write_digits(self.output))
            untrained, trained = str(self.output / "untrained_model"), str(self.output / "trained_model")
            logger.info("\n2. Initializing a ResNet-18")
            _type("init-model", "--architecture", "resnet18", "--output", untrained)
            logger.info("\n3. Training")
            _type("train", "--untrained-model", untrained, "--training-dataset", training,
                  "--validation-dataset", validation, "--trained-model", trained,
                  "--batch-size", str(BATCH_SIZE))  # fmt: skip
            logger.info("\n4. Scoring held-out images")
            _type("score", "--trained-model", trained, "--dataset", held_out,
                  "--scored-dataset", str(self.output / "scores"))  # fmt: skip
            logger.info(
                "\n5. Next: your own images, in one folder per category, such as photographs/daisy/1.jpg:"
            )
            for command in (*activation_commands(), f"{PROGRAM} fit photographs"):
                logger.info(f"  {command}")


def _type(verb: str, *arguments: str) -> None:
    """Print a command line, then run it."""
    logger.info(f"$ {PROGRAM} {shlex.join([verb, *arguments])}")
    command: Command = tyro.cli(VERBS[verb], args=arguments)
    command.run()
