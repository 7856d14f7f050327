"""What an evaluation says, in a few lines of the log."""

from collections.abc import Iterator, Sequence

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import TOP_K, Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.multi_label_words import multi_label_rows
from train_pytorch_model.evaluation.tables import worst_first
from train_pytorch_model.evaluation.verdict import describe_baseline, verdict
from train_pytorch_model.machine.console import logger, paragraph

NUM_WORST = 3


def log_summary(evaluation: AnyEvaluation, categories: Sequence[str], indent: str = "") -> None:
    """Log what the evaluation means, and the main metrics; the categories are by class index."""
    paragraph(verdict(evaluation, categories))
    for title, text in _rows(evaluation, categories):
        logger.info(f"{indent}{title:21}{text}")


def _rows(evaluation: AnyEvaluation, categories: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each main metric, and of the worst categories."""
    if isinstance(evaluation, MultiLabelEvaluation):
        yield from multi_label_rows(evaluation, categories)
        return
    yield from _metrics(evaluation, categories)
    yield from _worst_categories(evaluation, categories)


def _metrics(evaluation: Evaluation, categories: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each main metric."""
    low, high = evaluation.accuracy_interval
    counts = f"{evaluation.correct:,} of {evaluation.images:,} images"
    yield "Accuracy", f"{evaluation.accuracy:7.1%}  {counts}, 95% interval {low:.1%} to {high:.1%}"
    yield "Baseline", f"{evaluation.baseline:7.1%}  {describe_baseline(evaluation, categories)}"
    if len(categories) > TOP_K:  # else it is always 100 %
        yield "Top 5 accuracy", f"{evaluation.top5:7.1%}"
    balanced = f"{evaluation.balanced_accuracy:7.1%}"
    yield "Balanced accuracy", f"{balanced}  mean recall of the categories"
    yield "Loss", f"{evaluation.loss:7.3f}  nats"
    confidence = f"mean confidence {evaluation.mean_confidence:.1%}"
    yield "Calibration error", f"{evaluation.calibration.error:7.1%}  {confidence}"


def _worst_categories(
    evaluation: Evaluation, categories: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield a title, on the first row only, and what is recognized of each of the worst."""
    title = "Worst categories"
    present = [row for row in worst_first(evaluation, categories) if row.support]
    for row in present[:NUM_WORST]:
        images = counted(row.support, "image", "images")
        yield title, f"F1 {row.f1:.2f}  recall {row.recall:.2f} of {images}: {row.category!r}"
        title = ""
