"""`score`: predict the category of every image in a directory."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from train_pytorch_model.commands.launch import rank_of
from train_pytorch_model.commands.processes import opened_once, spelled, work_or_start_workers
from train_pytorch_model.commands.program import OptionalInt, Switch
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.inputs.opening import open_scoring_inputs
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.words.errors import ParameterError, out_of_range
from train_pytorch_model.words.wording import counted

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

FLAG = "--scored-dataset"


@dataclass(frozen=True, kw_only=True)
class Score:
    """Predict the category of every image in a directory.

    Uses all GPUs by default. Also runs under torchrun and as an Azure ML job."""

    EXAMPLE: ClassVar[str] = "--trained-model trained --dataset flowers/new --scored-dataset scores"

    trained_model: Path
    """Trained model directory, as written by train."""

    dataset: Path
    """Images, labelled or not: one folder per category, an ImageDirectory, or a folder of images."""

    scored_dataset: Path
    """Directory for _data.parquet and scores.csv; must be new or empty."""

    top_k: OptionalInt = None
    """Number of most probable categories per image in scores.csv. By default all."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Score the images, and print the accuracy if they are labelled."""
        is_main = rank_of(os.environ) == 0
        set_up(is_main, self.quiet)
        if self.top_k is not None and self.top_k < 1:
            raise ParameterError(out_of_range("Top k", "greater than 0", "--top-k", self.top_k))
        check_apart(self.scored_dataset, FLAG, self.dataset, "--dataset")
        arguments = ["score", *self._arguments()]
        inputs = opened_once(lambda: open_scoring_inputs(self.trained_model, self.dataset), arguments)
        check_output(self.scored_dataset, FLAG, by_writing=is_main)

        def work(world: "World") -> None:
            from train_pytorch_model.distributed import agreed_inputs
            from train_pytorch_model.stories import predict as predicting
            from train_pytorch_model.stories import score as scoring

            agreed = agreed_inputs.agree_on_scoring(inputs, world)
            if not world.is_main:
                predicting.predict_share(agreed, scoring.TITLE, world)
                return
            for warning in agreed.warnings:
                logger.warning(warning)
            scored = scoring.score(agreed, self.scored_dataset, self.top_k, world)
            if scored.labelled:
                share = scored.correct / scored.labelled
                labelled = counted(scored.labelled, "image", "images")
                logger.info(f"Accuracy {share:.1%}: {scored.correct:,} of {labelled}")
            images = counted(scored.images, "image", "images")
            logger.info(f"The scores of {images} are in {self.scored_dataset}/scores.csv")

        work_or_start_workers(work, arguments, inputs)

    def _arguments(self) -> list[str]:
        """The arguments of this command, for the worker processes that it starts."""
        flags = {
            "--trained-model": self.trained_model,
            "--dataset": self.dataset,
            FLAG: self.scored_dataset,
            "--top-k": self.top_k,
        }
        return spelled(flags, {"--quiet": self.quiet})
