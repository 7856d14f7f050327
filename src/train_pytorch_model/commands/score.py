"""`score`: predict the category of every image in a directory."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from train_pytorch_model.commands.processes import options_of, run_on_images
from train_pytorch_model.commands.program import OptionalInt, Switch
from train_pytorch_model.inputs.opening import ScoringInputs, open_scoring_inputs
from train_pytorch_model.machine.console import logger
from train_pytorch_model.words.errors import ParameterError, out_of_range
from train_pytorch_model.words.wording import counted

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


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
        if self.top_k is not None and self.top_k < 1:
            raise ParameterError(out_of_range("Top k", "greater than 0", "--top-k", self.top_k))
        run_on_images(
            self._score,
            lambda: open_scoring_inputs(self.trained_model, self.dataset),
            ["score", *options_of(self)],
            trained_model=self.trained_model,
            dataset=self.dataset,
            output=self.scored_dataset,
            output_name="scored_dataset",
            quiet=self.quiet,
        )

    def _score(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.stories.score import score

        scored = score(inputs, self.scored_dataset, self.top_k, world)
        if scored is None:
            return
        if scored.labelled:
            labelled = counted(scored.labelled, "image", "images")
            logger.info(f"Accuracy {scored.correct / scored.labelled:.1%}: {scored.correct:,} of {labelled}")
        images = counted(scored.images, "image", "images")
        logger.info(f"The scores of {images} are in {self.scored_dataset}/scores.csv")
