"""What an evaluation says, in a few lines of the log."""

from collections.abc import Sequence

from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.evaluation.verdict import main_metrics, verdict
from train_pytorch_model.machine.console import logger, paragraph


def log_summary(evaluation: AnyEvaluation, categories: Sequence[str], indent: str = "") -> None:
    """Log what the evaluation means, and the main metrics; the categories are by class index."""
    paragraph(verdict(evaluation, categories))
    for title, text in main_metrics(evaluation, categories):
        logger.info(f"{indent}{title:21}{text}")
