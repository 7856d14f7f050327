"""An evaluation in a sentence or two: is the model better than guessing, and where is it weak?"""

from collections.abc import Sequence

import numpy as np

from train_pytorch_model.measures.evaluation import Evaluation
from train_pytorch_model.words.wording import counted

GOOD = 0.9  # accuracy and balanced accuracy from which on a model is called good
MAX_WIDTH = 0.3  # of a confidence interval; 5 of 16 right, 14 % to 56 %, say nothing
MAX_NAMED = 3  # categories
MAX_NAME = 60  # characters


def baseline_of(evaluation: Evaluation) -> float:
    """The accuracy of always guessing the category with the most images, from 0 to 1."""
    return float(evaluation.per_class.support.max()) / evaluation.images


def is_better_than_guessing(evaluation: Evaluation) -> bool:
    """Whether the accuracy is above the baseline by more than chance."""
    return evaluation.accuracy_interval[0] > baseline_of(evaluation)


def describe_baseline(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """What the baseline is, in words; `categories` are the names by class index."""
    largest = int(evaluation.per_class.support.argmax())
    return f"always guessing the largest category, {_quote(categories[largest])}"


def verdict(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """What the evaluation means, most important first: sentences that may hold category names in quotes."""
    present = np.flatnonzero(evaluation.per_class.has_recall)
    if len(present) == 1:
        return (
            f"All images are of one category, {_quote(categories[present[0]])}: they do not show whether the"
            " model tells it from the others."
        )
    sentences = [_compare(evaluation, categories)]
    never = present[evaluation.per_class.predicted[present] == 0]
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
        images = counted(evaluation.images, "image", "images")
        sentences.append(
            f"On {images} this says next to nothing: the accuracy may be anything from {low:.0%} to"
            f" {high:.0%}."
        )
    return " ".join(sentences)


def _compare(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """The accuracy against guessing, and the weakest category if there is one."""
    baseline, guess = baseline_of(evaluation), describe_baseline(evaluation, categories)
    accuracy = f"{evaluation.accuracy:.1%}, {evaluation.correct:,} of {evaluation.images:,}"
    if evaluation.accuracy <= baseline:
        return f"The model is no better than guessing: {accuracy}; {guess}, gives {baseline:.1%}."
    if not is_better_than_guessing(evaluation):
        return f"The model may be no better than guessing: {accuracy}; {guess}, gives {baseline:.1%}."
    is_good = min(evaluation.accuracy, evaluation.balanced_accuracy) >= GOOD
    start = f"Good: {accuracy}" if is_good else f"Better than guessing: {accuracy}, against {baseline:.1%}"
    return f"{start}{_weakest(evaluation, categories)}."


def _weakest(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """The category with the lowest recall, and the number of its images that are right; empty if all are."""
    per_class = evaluation.per_class
    index = int(np.where(per_class.has_recall, per_class.recall, 2).argmin())
    recall, images = float(per_class.recall[index]), int(per_class.support[index])
    if recall == 1:
        return ""
    return f"; weakest: {_quote(categories[index])}, {round(recall * images):,} of {images:,}"


def _quote(name: str) -> str:
    return repr(name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + "…")
