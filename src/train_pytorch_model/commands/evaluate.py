"""`evaluate`: measure a model on labelled images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from train_pytorch_model.commands.score import OnImages
from train_pytorch_model.config.options import Switch
from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.evaluation.metrics import TOP_K, Evaluation
from train_pytorch_model.evaluation.tables import worst_first
from train_pytorch_model.evaluation.verdict import describe_baseline, verdict
from train_pytorch_model.inputs import opening
from train_pytorch_model.inputs.opening import ScoringInputs
from train_pytorch_model.machine.console import logger, paragraph

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World


NUM_WORST = 3


@dataclass(frozen=True, kw_only=True)
class Evaluate(OnImages):
    """Evaluate a trained model on labelled images: metrics, tables and an HTML report."""

    EXAMPLE = "--trained-model trained --dataset flowers/test --output evaluation"

    dataset: Path
    """Labelled images, ideally held out from training: one folder per category, an archive
    of that, or an ImageDirectory."""
    output: Path
    """Directory for evaluation.html, metrics.json and CSV tables; must be new or empty."""
    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Evaluate, and print the main metrics."""
        self.predict(
            "evaluate", self._evaluate, opening.open_evaluation_inputs, "output", self.quiet
        )

    def _evaluate(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.stories.evaluate import evaluate

        if evaluation := evaluate(inputs, self.output, world):
            show(evaluation, inputs.spec.categories)
            logger.info(f"The evaluation is in {self.output}/{PAGE}")


def show(evaluation: Evaluation, categories: Sequence[str], indent: str = "") -> None:
    """Log what the evaluation means, and the main metrics; `categories` holds the names by class
    index.
    """
    paragraph(verdict(evaluation, categories))
    (low, high), confidence = evaluation.accuracy_interval, evaluation.mean_confidence
    counts = f"{evaluation.correct:,} of {evaluation.images:,} images"
    rows = {
        "Accuracy": f"{evaluation.accuracy:7.1%}  {counts}, 95% interval {low:.1%} to {high:.1%}",
        "Baseline": f"{evaluation.baseline:7.1%}  {describe_baseline(evaluation, categories)}",
        "Top 5 accuracy": f"{evaluation.top5:7.1%}",
        "Balanced accuracy": f"{evaluation.balanced_accuracy:7.1%}  mean recall of the categories",
        "Loss": f"{evaluation.loss:7.3f}  nats",
        "Calibration error": f"{evaluation.calibration.error:7.1%}  mean confidence {confidence:.1%}",
    }
    if len(categories) <= TOP_K:  # then it is always 100 %
        del rows["Top 5 accuracy"]
    for title, text in rows.items():
        logger.info(f"{indent}{title:21}{text}")
    present = [row for row in worst_first(evaluation, categories) if row.support]
    for index, row in enumerate(present[:NUM_WORST]):
        title, images = "" if index else "Worst categories", counted(row.support, "image", "images")
        logger.info(
            f"{indent}{title:21}F1 {row.f1:.2f}  recall {row.recall:.2f} of {images}:"
            f" {row.category!r}"
        )
