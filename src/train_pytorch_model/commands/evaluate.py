"""`evaluate`: measure a model on labelled images."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from train_pytorch_model.commands.score import OnImages
from train_pytorch_model.config.options import OptionalPath, Switch
from train_pytorch_model.config.table_options import TableOptions, columns_of
from train_pytorch_model.config.wording import counted
from train_pytorch_model.distributed.processes import on_this_host
from train_pytorch_model.formats.replacing import EVALUATED
from train_pytorch_model.inputs import scoring
from train_pytorch_model.inputs.scoring import ScoringInputs
from train_pytorch_model.machine.console import logger

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


@dataclass(frozen=True, kw_only=True)
class Evaluate(TableOptions, OnImages):
    """Evaluate a trained model on labelled images: metrics, tables and an HTML report."""

    EXAMPLE = "--trained-model trained --dataset flowers/test --output evaluation"

    dataset: Path
    (
        "Labelled images, ideally held out from training: one folder per category, images with a"
        "\n    table, an archive of either, or an ImageDirectory."
    )
    output: Path
    """Directory for evaluation.html, metrics.json and CSV tables; must be new or empty."""
    against: OptionalPath = None
    (
        "Another trained model of the same categories: which one is better on these images, how"
        "\n    sure that is, and where they differ."
    )
    overwrite: Switch = False
    """Replace the evaluation in the output, if it is whole, once the new one is complete."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Evaluate, and print the main metrics."""
        self.predict(
            "evaluate",
            self._evaluate,
            self._open_inputs,
            "output",
            EVALUATED,
            overwrite=self.overwrite,
            quiet=self.quiet,
        )

    def _open_inputs(self, trained_model: Path, dataset: Path) -> ScoringInputs:
        inputs = scoring.open_evaluation_inputs(trained_model, dataset, columns_of(self))
        images = counted(len(inputs.images), "image", "images")
        origin = inputs.images.origin or "the names of the folders"
        logger.info(f"{dataset}: {images}, whose categories are from {origin}")
        if self.against is None:
            return inputs
        return scoring.with_other_model(inputs, self.against)

    def _evaluate(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.evaluation.directory import PAGE
        from train_pytorch_model.evaluation.summary import log_summary
        from train_pytorch_model.stories.evaluate import evaluate

        inputs = self._with_other_on_this_host(inputs)
        evaluation = evaluate(inputs, self.output, world, overwrite=self.overwrite)
        if evaluation is not None:
            log_summary(evaluation, inputs.spec.categories)
            logger.info(f"The evaluation is in {self.output}/{PAGE}")

    def _with_other_on_this_host(self, inputs: ScoringInputs) -> ScoringInputs:
        """Return the inputs whose other model, if any, has its path and the images' on this host.

        Rank 0 has opened them.
        """
        if inputs.against is None or self.against is None:
            return inputs
        model = on_this_host(inputs.against.model, self.against)
        against = replace(inputs.against, model=model, images=inputs.images)
        return replace(inputs, against=against)
