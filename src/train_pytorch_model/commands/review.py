"""`review`: a page on which a person corrects labels."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.config.table_options import TableOptions, columns_of
from train_pytorch_model.machine.command_lines import correction_command
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.quality.review_order import MAX_REVIEWED


@dataclass(frozen=True, kw_only=True)
class Review(TableOptions):
    """Write a page of the images that most need a decision: wrong labels, and what to label next.

    The page is one file that opens anywhere, and saves the decisions as corrections.csv."""

    EXAMPLE = "photographs-model --dataset photographs"

    model: tyro.conf.Positional[Path]
    """Trained model directory, as written by fit or train."""
    dataset: Path
    """Images, labelled or not, in any of the forms that fit takes; no archive."""
    output: Path = Path("review.html")
    """Page to write; an earlier one is replaced."""
    corrections: OptionalPath = None
    (
        "Table of earlier decisions, which are not asked again, and saved with the new ones. By"
        " default the model's own."
    )
    num_images: int = MAX_REVIEWED
    """Number of images on the page, at most 500."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Write the page, and say what to do with it."""
        set_up(quiet=self.quiet)
        from train_pytorch_model.stories.write_review import write_review

        new_images = write_review(
            self.model,
            self.dataset,
            self.output,
            columns_of(self),
            self.corrections,
            self.num_images,
        )
        where = "" if new_images is None else f" in {new_images}"
        logger.info(
            f"The page is {self.output}: open it in a browser, decide, and save corrections.csv"
            f"{where}. Then, with the options that the model was trained with:"
        )
        if new_images is not None:
            logger.info("  # FOLDER: the images that the model was trained on")
        command = correction_command(new_images or self.dataset, has_categories=new_images is None)
        logger.info(f"  {command}")
