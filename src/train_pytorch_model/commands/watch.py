"""`watch`: whether a model still sees what it was validated on."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from train_pytorch_model.commands.next_steps import review_command
from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.config.wording import visible
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.replacing import WATCHED
from train_pytorch_model.inputs.scoring import open_trained
from train_pytorch_model.machine.console import logger, paragraph, set_up

NUM_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Tell whether new images are like a model's validation images, and estimate its accuracy.

    Without labels, from what `score` and a served model write about the images."""

    EXAMPLE = "photographs-model --scores today --output watched"

    model: tyro.conf.Positional[Path]
    """Trained model directory, as written by train or fit."""
    scores: tuple[Path, ...]
    (
        "Directories that score has written, or tables of a served model's answers with the"
        "\n    parameter watch: .parquet, .csv or .json."
    )
    output: OptionalPath = None
    """Directory for watch.json and look_first.csv; must be new or empty."""
    overwrite: Switch = False
    """Replace the output, if watch has written it, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Compare, and print the answer."""
        set_up(quiet=self.quiet)
        if self.output is not None:
            check_output(self.output, "output", kind=WATCHED, overwrite=self.overwrite)
        model = open_trained(self.model)

        from train_pytorch_model.stories.watch import watch, write_watched

        watched = watch(model, self.scores)
        for sentence in watched.sentences:
            paragraph(sentence)
        if watched.drift.changes:
            logger.info("Look at these first:")
            for name, label, confidence, _ in watched.look_first[:NUM_SHOWN]:
                logger.info(f"  {visible(name)}: {visible(label)}, {confidence:.1%}")
            logger.info("On a page, to decide about their categories:")
            logger.info(f"  {review_command(self.model, Path('FOLDER'))}")
        if self.output is not None:
            write_watched(watched, self.output, self.overwrite)
            logger.info(f"The numbers and all images to look at are in {self.output}")
