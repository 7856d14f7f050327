"""`evaluate`: measure a trained model on labelled images."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from train_pytorch_model.commands.launch import rank_of
from train_pytorch_model.commands.processes import opened_once, spelled, work_or_start_workers
from train_pytorch_model.commands.program import Switch
from train_pytorch_model.formats.outputs import check_apart, check_output
from train_pytorch_model.inputs.opening import open_evaluation_inputs
from train_pytorch_model.machine.console import logger, set_up
from train_pytorch_model.measures.evaluation import TOP_K, Evaluation, accuracy_in_images, worst_categories
from train_pytorch_model.measures.evaluation_directory import PAGE

if TYPE_CHECKING:
    from train_pytorch_model.distributed.world import World

FLAG = "--output"
NUM_WORST = 3


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Evaluate a trained model on labelled images: metrics, tables and an HTML report."""

    EXAMPLE: ClassVar[str] = "--trained-model trained --dataset flowers/test --output evaluation"

    trained_model: Path
    """Trained model directory, as written by train."""

    dataset: Path
    """Labelled images, ideally held out from training: one folder per category, or an ImageDirectory."""

    output: Path
    """Directory for evaluation.html, metrics.json and CSV tables; must be new or empty."""

    quiet: Switch = False
    """Print warnings and errors only."""

    def run(self) -> None:
        """Evaluate, and print the main metrics."""
        is_main = rank_of(os.environ) == 0
        set_up(is_main, self.quiet)
        check_apart(self.output, FLAG, self.dataset, "--dataset")
        arguments = ["evaluate", *self._arguments()]
        inputs = opened_once(lambda: open_evaluation_inputs(self.trained_model, self.dataset), arguments)
        check_output(self.output, FLAG, by_writing=is_main)

        def work(world: "World") -> None:
            from train_pytorch_model.distributed import agreed_inputs
            from train_pytorch_model.stories import evaluate as evaluating
            from train_pytorch_model.stories import predict as predicting

            agreed = agreed_inputs.agree_on_scoring(inputs, world)
            if not world.is_main:
                predicting.predict_share(agreed, evaluating.TITLE, world)
                return
            for warning in agreed.warnings:
                logger.warning(warning)
            evaluation = evaluating.evaluate(agreed, self.output, world)
            for line in summary(evaluation, agreed.spec.categories):
                logger.info(line)
            logger.info(f"The evaluation is in {self.output}/{PAGE}")

        work_or_start_workers(work, arguments, inputs)

    def _arguments(self) -> list[str]:
        """The arguments of this command, for the worker processes that it starts."""
        flags = {"--trained-model": self.trained_model, "--dataset": self.dataset, FLAG: self.output}
        return spelled(flags, {"--quiet": self.quiet})


def summary(evaluation: Evaluation, categories: Sequence[str]) -> Iterator[str]:
    """Yield the lines of a table of the main metrics; `categories` holds the names by class index."""
    yield f"Accuracy             {evaluation.accuracy:7.1%}  {accuracy_in_images(evaluation)}"
    always = "" if len(categories) > TOP_K else f"  always 100% with {len(categories)} categories"
    yield f"Top 5 accuracy       {evaluation.top5:7.1%}{always}"
    yield f"Balanced accuracy    {evaluation.balanced_accuracy:7.1%}  mean recall of the categories"
    yield f"Loss                 {evaluation.loss:7.3f}  nats"
    yield (
        f"Calibration error    {evaluation.calibration.error:7.1%}  mean confidence"
        f" {evaluation.mean_confidence:.1%}"
    )
    per_class = evaluation.per_class
    for place, index in enumerate(worst_categories(per_class)[:NUM_WORST]):
        title = "Worst categories" if place == 0 else ""
        precision = f"precision {per_class.precision[index]:.2f}"
        predicted = precision if per_class.has_precision[index] else "never predicted"
        yield (
            f"{title:21}F1 {per_class.f1[index]:.2f}  {categories[index]!r}:"
            f" {predicted}, recall {per_class.recall[index]:.2f},"
            f" {per_class.support[index]:,} images"
        )
