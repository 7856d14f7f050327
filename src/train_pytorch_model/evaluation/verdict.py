"""What the metrics of a model mean, in words."""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.multi_label_words import (
    describe_multi_label_trust,
    multi_label_verdict,
)
from train_pytorch_model.evaluation.quoting import quote, quoted_list

GOOD = 0.9  # accuracy and balanced accuracy from which on a model is called good
MAX_WIDTH = 0.3  # of a confidence interval; 5 of 16 right, 14 % to 56 %, say nothing
MAX_GAP = 0.05  # between mean confidence and accuracy, of probabilities that mean what they say


def describe_baseline(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """Return what the baseline is, in words; `categories` are the names by class index."""
    largest = int(evaluation.per_class.support.argmax())
    return f"always guessing the largest category, {quote(categories[largest])}"


def verdict(evaluation: AnyEvaluation, categories: Sequence[str]) -> str:
    """Return what the evaluation means, most important first.

    It is a few sentences, which may hold category names in quotes.
    """
    if isinstance(evaluation, MultiLabelEvaluation):
        return multi_label_verdict(evaluation, categories)
    present = np.flatnonzero(evaluation.per_class.support)
    if len(present) == 1:
        return (
            f"All images are of one category, {quote(categories[present[0]])}: they do not show"
            " whether the model tells it from the others."
        )
    sentences = [
        _about_accuracy(evaluation, categories),
        _about_categories_never_predicted(evaluation, categories),
        _about_few_images(evaluation),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def describe_trust(evaluation: AnyEvaluation) -> str:
    """Return whether the probabilities can be taken at their word, in a sentence."""
    if isinstance(evaluation, MultiLabelEvaluation):
        return describe_multi_label_trust(evaluation)
    low, high = evaluation.accuracy_interval
    if high - low > MAX_WIDTH:
        images = counted(evaluation.images, "image is", "images are")
        return (
            f"{images} too few to say whether the model's probabilities can be taken at their word."
        )
    how = (
        f"on average it is {evaluation.mean_confidence:.0%} sure, and right in"
        f" {evaluation.accuracy:.0%} of the images"
    )
    tolerance = max(MAX_GAP, (high - low) / 2)
    gap = evaluation.mean_confidence - evaluation.accuracy
    if gap > tolerance:
        return f"The model's probabilities promise too much: {how}."
    if gap < -tolerance:
        return f"The model's probabilities are too modest: {how}."
    return f"The model's probabilities can be taken at their word: {how}."


def _about_accuracy(evaluation: Evaluation, categories: Sequence[str]) -> str:
    baseline = evaluation.baseline
    accuracy = f"{evaluation.accuracy:.1%}, {evaluation.correct:,} of {evaluation.images:,}"
    if not evaluation.is_better_than_guessing:
        verb = "is" if evaluation.accuracy <= baseline else "may be"
        guess = describe_baseline(evaluation, categories)
        return (
            f"The model {verb} no better than guessing: {accuracy}; {guess}, gives {baseline:.1%}."
        )
    weakest = _weakest_category(evaluation, categories)
    if min(evaluation.accuracy, evaluation.balanced_accuracy) < GOOD:
        return f"Better than guessing: {accuracy}, against {baseline:.1%}{weakest}."
    return f"Good: {accuracy}{weakest}."


def _weakest_category(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """Return the end of a sentence about the lowest recall; empty if all recalls are 1."""
    per_class = evaluation.per_class
    present = np.flatnonzero(per_class.support)
    index = present[per_class.recall[present].argmin()]
    recall = float(per_class.recall[index])
    support = int(per_class.support[index])
    if recall == 1:
        return ""
    return f"; weakest: {quote(categories[index])}, {round(recall * support):,} of {support:,}"


def _about_categories_never_predicted(evaluation: Evaluation, categories: Sequence[str]) -> str:
    per_class = evaluation.per_class
    present = np.flatnonzero(per_class.support)
    never = present[per_class.predicted[present] == 0]
    if len(never) == 0:
        return ""
    named = quoted_list([categories[index] for index in never])
    verb = "is" if len(never) == 1 else "are"
    total = counted(len(present), "category", "categories")
    return f"{len(never):,} of {total} {verb} never predicted: {named}."


def _about_few_images(evaluation: Evaluation) -> str:
    low, high = evaluation.accuracy_interval
    if high - low <= MAX_WIDTH:
        return ""
    images = counted(evaluation.images, "image", "images")
    return (
        f"On {images} this says next to nothing: the accuracy may be anything from {low:.0%} to"
        f" {high:.0%}. More images would tell."
    )
