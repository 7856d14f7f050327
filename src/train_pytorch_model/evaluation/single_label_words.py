"""What the metrics of images with one category each mean, in words."""

from collections.abc import Iterator, Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import TOP_K, Evaluation
from train_pytorch_model.evaluation.quoting import about_never, quote
from train_pytorch_model.evaluation.tables import worst_first

GOOD = 0.9  # accuracy and balanced accuracy from which on a model is called good
MAX_WIDTH = 0.3  # of a confidence interval; 5 of 16 right, 14 % to 56 %, say nothing
NUM_WORST = 3
MAX_GAP = 0.05  # between mean confidence and accuracy, of probabilities that mean what they say


def describe_baseline(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """Return what the baseline is, in words; `categories` are the names by class index."""
    largest = int(evaluation.per_class.support.argmax())
    return f"always guessing the largest category, {quote(categories[largest])}"


def single_label_verdict(evaluation: Evaluation, categories: Sequence[str]) -> str:
    """Return what the evaluation means, most important first, in a few sentences."""
    present = np.flatnonzero(evaluation.per_class.support)
    if len(present) == 1:
        return (
            f"All images are of one category, {quote(categories[present[0]])}: they do not show"
            " whether the model tells it from the others."
        )
    sentences = [
        _about_accuracy(evaluation, categories),
        about_never(evaluation.per_class, categories, "predicted"),
        _about_few_images(evaluation),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def describe_single_label_trust(evaluation: Evaluation) -> str:
    """Return whether the probabilities can be taken at their word, in a sentence."""
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


def single_label_rows(
    evaluation: Evaluation, categories: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each main metric, and of the worst categories."""
    yield from _metrics(evaluation, categories)
    yield from _worst_categories(evaluation, categories)


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


def _about_few_images(evaluation: Evaluation) -> str:
    low, high = evaluation.accuracy_interval
    if high - low <= MAX_WIDTH:
        return ""
    images = counted(evaluation.images, "image", "images")
    return (
        f"On {images} this says next to nothing: the accuracy may be anything from {low:.0%} to"
        f" {high:.0%}. More images would tell."
    )


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
