"""What the metrics of images with any number of categories mean, in words."""

from collections.abc import Iterator, Sequence

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.multi_label import MultiLabelEvaluation
from train_pytorch_model.evaluation.quoting import about_never, quote

GOOD = 0.9  # mean average precision from which on a model is called good
MAX_ERROR = 0.05  # of probabilities that mean what they say
FEW_IMAGES = 30  # an average precision of fewer says next to nothing
NUM_WORST = 3


def multi_label_verdict(evaluation: MultiLabelEvaluation, categories: Sequence[str]) -> str:
    """Return what the evaluation means, most important first, in a few sentences."""
    if evaluation.labels == 0:
        return "No image has a category: they do not show whether the model finds any."
    sentences = [
        _about_precision(evaluation, categories),
        _about_answers(evaluation),
        about_never(evaluation.per_class, categories, "answered"),
        _about_few_images(evaluation),
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def describe_multi_label_trust(evaluation: MultiLabelEvaluation) -> str:
    """Return whether the probabilities can be taken at their word, in a sentence."""
    error = evaluation.calibration.error
    if evaluation.images < FEW_IMAGES:
        images = counted(evaluation.images, "image is", "images are")
        return (
            f"{images} too few to say whether the model's probabilities can be taken at their word."
        )
    how = f"on average they are {error:.1%} away from how often a category applies"
    if error <= MAX_ERROR:
        return f"The model's probabilities can be taken at their word: {how}."
    return f"The model's probabilities cannot be taken at their word: {how}."


def multi_label_rows(
    evaluation: MultiLabelEvaluation, categories: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield the title and the text of each main metric, and of the worst categories."""
    mean = evaluation.mean_average_precision
    yield "Mean average prec.", f"{mean:7.1%}  guessing gives {evaluation.baseline:.1%}"
    micro = evaluation.micro
    found = f"finds {micro.recall:.1%} of the labels, and {micro.precision:.1%} of its answers hold"
    yield "Micro F1", f"{micro.f1:7.3f}  {found}"
    yield "Macro F1", f"{evaluation.macro.f1:7.3f}  mean over the categories"
    low, high = evaluation.accuracy_interval
    counts = f"{evaluation.correct:,} of {evaluation.images:,} images"
    text = f"{evaluation.accuracy:7.1%}  {counts}, 95% interval {low:.1%} to {high:.1%}"
    yield "Exact match", text
    yield (
        "Top 1 accuracy",
        f"{evaluation.top1:7.1%}  the most probable category is among the labels",
    )
    yield "Loss", f"{evaluation.loss:7.3f}  nats, the sum over the categories of an image"
    yield "Calibration error", f"{evaluation.calibration.error:7.1%}"
    title = "Worst categories"
    for index in worst_categories(evaluation)[:NUM_WORST].tolist():
        images = counted(int(evaluation.per_class.support[index]), "image", "images")
        precision = evaluation.average_precision[index]
        yield title, f"average precision {precision:.2f} of {images}: {categories[index]!r}"
        title = ""


def worst_categories(evaluation: MultiLabelEvaluation) -> np.ndarray:
    """Return the class indices of the categories with images, the lowest average precision first.

    They are (K,), int64.
    """
    order = np.argsort(evaluation.average_precision, kind="stable")  # NaN last
    worst: np.ndarray = order[evaluation.per_class.support[order] > 0]
    return worst


def _about_precision(evaluation: MultiLabelEvaluation, categories: Sequence[str]) -> str:
    mean = f"mean average precision {evaluation.mean_average_precision:.1%}"
    if not evaluation.is_better_than_guessing:
        guessing = f"guessing gives {evaluation.baseline:.1%}"
        return f"The model is no better than guessing: {mean}; {guessing}."
    worst = int(worst_categories(evaluation)[0])
    weakest = ""
    if evaluation.average_precision[worst] < 1:
        images = counted(int(evaluation.per_class.support[worst]), "image", "images")
        precision = f"{evaluation.average_precision[worst]:.1%} of {images}"
        weakest = f"; weakest: {quote(categories[worst])}, {precision}"
    if evaluation.mean_average_precision < GOOD:
        return f"Better than guessing: {mean}, against {evaluation.baseline:.1%}{weakest}."
    return f"Good: {mean}{weakest}."


def _about_answers(evaluation: MultiLabelEvaluation) -> str:
    micro = evaluation.micro
    return (
        f"At the thresholds it finds {micro.recall:.0%} of the {evaluation.labels:,} labels, and"
        f" {micro.precision:.0%} of its answers are right."
    )


def _about_few_images(evaluation: MultiLabelEvaluation) -> str:
    if evaluation.images >= FEW_IMAGES:
        return ""
    images = counted(evaluation.images, "image", "images")
    return f"On {images} this says next to nothing. More images would tell."
