"""What the metrics of a model mean, in words."""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import Evaluation

GOOD = 0.9  # accuracy and balanced accuracy from which on a model is called good
MAX_WIDTH = 0.3  # of a confidence interval; 5 of 16 right, 14 % to 56 %, say nothing
MAX_NAMED = 3  # categories
MAX_NAME = 60  # characters


def describe_baseline(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """What the baseline is, in words; `categories` are the names by class index."""
    largest = int(evaluation.per_class.support.argmax())
    return f"always guessing the largest category, {_quote(categories[largest])}"


def verdict(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """What the evaluation means, most important first: sentences that may hold category names in
    quotes.
    """
    per_class = evaluation.per_class
    present = np.flatnonzero(per_class.support)
    if len(present) == 1:
        return (
            f"All images are of one category, {_quote(categories[present[0]])}: they do not show"
            " whether the"
            " model tells it from the others."
        )
    baseline, guess = evaluation.baseline, describe_baseline(evaluation, categories)
    accuracy = f"{evaluation.accuracy:.1%}, {evaluation.correct:,} of {evaluation.images:,}"
    if not evaluation.is_better_than_guessing:
        verb = "is" if evaluation.accuracy <= baseline else "may be"
        sentences = [
            f"The model {verb} no better than guessing: {accuracy}; {guess}, gives {baseline:.1%}."
        ]
    else:
        start = f"Good: {accuracy}"
        if min(evaluation.accuracy, evaluation.balanced_accuracy) < GOOD:
            start = f"Better than guessing: {accuracy}, against {baseline:.1%}"
        index = present[per_class.recall[present].argmin()]  # the weakest category
        recall, support = float(per_class.recall[index]), int(per_class.support[index])
        right = f"{round(recall * support):,} of {support:,}"
        weakest = "" if recall == 1 else f"; weakest: {_quote(categories[index])}, {right}"
        sentences = [f"{start}{weakest}."]
    never = present[per_class.predicted[present] == 0]
    if len(never):
        named = ", ".join(_quote(categories[index]) for index in never[:MAX_NAMED])
        rest = f" and {len(never) - MAX_NAMED:,} more" if len(never) > MAX_NAMED else ""
        is_or_are = "is" if len(never) == 1 else "are"
        sentences.append(
            f"{len(never):,} of {counted(len(present), 'category', 'categories')} {is_or_are} never"
            f" predicted: {named}{rest}."
        )
    low, high = evaluation.accuracy_interval
    if high - low > MAX_WIDTH:
        few = counted(evaluation.images, "image", "images")
        sentences.append(
            f"On {few} this says next to nothing: the accuracy may be anything from {low:.0%} to"
            f" {high:.0%}."
        )
    return " ".join(sentences)


def _quote(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…")
