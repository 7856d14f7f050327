"""What the metrics of a model mean, in words: of the kind of labels that its images have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.multi_label_words import (
    describe_multi_label_trust,
    multi_label_rows,
    multi_label_verdict,
)
from train_pytorch_model.evaluation.single_label_words import (
    describe_single_label_trust,
    single_label_rows,
    single_label_verdict,
)


@dataclass(frozen=True)
class _Words:
    """How evaluations of one kind are described: see the functions below."""

    verdict: Callable[..., str]
    trust: Callable[..., str]
    rows: Callable[..., Iterator[tuple[str, str]]]


_WORDS = {
    Evaluation: _Words(single_label_verdict, describe_single_label_trust, single_label_rows),
    MultiLabelEvaluation: _Words(multi_label_verdict, describe_multi_label_trust, multi_label_rows),
}


def verdict(evaluation: AnyEvaluation, categories: Sequence[str]) -> str:
    """Return what the evaluation means, most important first.

    It is a few sentences, which may hold category names in quotes.
    """
    return _WORDS[type(evaluation)].verdict(evaluation, categories)


def describe_trust(evaluation: AnyEvaluation) -> str:
    """Return whether the probabilities can be taken at their word, in a sentence."""
    return _WORDS[type(evaluation)].trust(evaluation)


def main_metrics(evaluation: AnyEvaluation, categories: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Return the title and the text of each main metric, and of the worst categories."""
    return _WORDS[type(evaluation)].rows(evaluation, categories)
