"""`fit`: from one folder of images to a trained and tested model."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from train_pytorch_model.commands.next_steps import review_command, scoring_commands
from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.formats.trained_directory import EVALUATION, REPORT
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.machine.launch import rank_of

if TYPE_CHECKING:
    from train_pytorch_model.stories.fit import Fitted


@dataclass(frozen=True, kw_only=True)
class Fit(FitOptions):
    """Train and test a classifier on one folder of images: split, init-model, train and evaluate in
    one."""

    EXAMPLE = "photographs"

    folder: tyro.conf.Positional[Path]
    (
        "One folder per category, images with a table, such as labels.csv, or that table; may be"
        " split into train, val and test. An archive is unpacked to FOLDER-images."
    )

    def run(self) -> None:
        """Train and test the model, and say how to use it."""
        from train_pytorch_model.evaluation.directory import PAGE
        from train_pytorch_model.stories.fit import fit

        set_up(rank_of(os.environ) == 0, self.quiet)
        fitted = fit(self.folder, self)
        if fitted.evaluation is None:
            return
        logger.info(f"The model is in {fitted.model}, with {REPORT} and {EVALUATION}/{PAGE}. Next:")
        for command in scoring_commands(fitted.model):
            logger.info(f"  {command}")
        for command in reviewing(fitted, self.folder):
            logger.info(f"  {command}")


def reviewing(fitted: "Fitted", folder: Path) -> Iterator[str]:
    """Yield the lines of a shell that show what looks wrong in the images, if that is possible."""
    from train_pytorch_model.datasets.conversion import is_archive
    from train_pytorch_model.stories.fit import beside

    if not fitted.review:
        return
    images = beside(folder, "images") if is_archive(folder) else folder
    yield f"# {fitted.review}"
    yield review_command(fitted.model, images)
