"""`evaluate`: measure a trained model on labelled images."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from train_pytorch_model.commands.processes import OnImages
from train_pytorch_model.inputs.opening import ScoringInputs, open_evaluation_inputs
from train_pytorch_model.machine.console import logger, paragraph
from train_pytorch_model.measures.evaluation import TOP_K, Evaluation
from train_pytorch_model.measures.evaluation_directory import PAGE, worst_first
from train_pytorch_model.measures.verdict import baseline_of, describe_baseline, verdict
from train_pytorch_model.words.errors import counted
from train_pytorch_model.words.settings import Switch

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
        self.predict("evaluate", self._evaluate, open_evaluation_inputs, "output", self.quiet)

    def _evaluate(self, inputs: ScoringInputs, world: "World") -> None:
        from train_pytorch_model.stories.predict import evaluate

        evaluation = evaluate(inputs, self.output, world)
        if evaluation is None:
            return
        paragraph(verdict(evaluation, inputs.spec.categories))
        for line in summary(evaluation, inputs.spec.categories):
            logger.info(line)
        logger.info(f"The evaluation is in {self.output}/{PAGE}")


def summary(evaluation: Evaluation, categories: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of the main metrics; `categories` holds the names by class index."""
    low, high = evaluation.accuracy_interval
    yield (
        f"Accuracy             {evaluation.accuracy:7.1%}  {evaluation.correct:,} of {evaluation.images:,}"
        f" images, 95% interval {low:.1%} to {high:.1%}"
    )
    yield f"Baseline             {baseline_of(evaluation):7.1%}  {describe_baseline(evaluation, categories)}"
    if len(categories) > TOP_K:  # otherwise it is always 100 %
        yield f"Top 5 accuracy       {evaluation.top5:7.1%}"
    yield f"Balanced accuracy    {evaluation.balanced_accuracy:7.1%}  mean recall of the categories"
    yield f"Loss                 {evaluation.loss:7.3f}  nats"
    yield (
        f"Calibration error    {evaluation.calibration.error:7.1%}  mean confidence"
        f" {evaluation.mean_confidence:.1%}"
    )
    present = [row for row in worst_first(evaluation, categories) if row.support]
    for index, row in enumerate(present[:NUM_WORST]):
        title = "Worst categories" if index == 0 else ""
        images = counted(row.support, "image", "images")
        yield f"{title:21}F1 {row.f1:.2f}  recall {row.recall:.2f} of {images}: {row.category!r}"
