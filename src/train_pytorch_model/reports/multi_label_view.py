"""What pages show of predictions for images with any number of categories."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from train_pytorch_model.config.wording import counted
from train_pytorch_model.evaluation.metrics import PERCENTS
from train_pytorch_model.evaluation.multi_label import (
    Curve,
    MultiLabelEvaluation,
    MultiLabelOutcomes,
)
from train_pytorch_model.evaluation.multi_label_tables import (
    LabelMistake,
    label_mistakes,
    label_rows,
)
from train_pytorch_model.evaluation.multi_label_words import worst_categories
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.evaluation.verdict import describe_trust, verdict
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.reports.chart import Chart, line_chart
from train_pytorch_model.reports.gallery import Card, Fact, Gallery
from train_pytorch_model.reports.pictures import thumbnail

MAX_ROWS = 1000  # of the table of categories
MAX_CURVES = 9
MAX_PAIRS = 12
MAX_MATRIX = 16  # categories of which all pairs are shown
MAX_CARDS = 12
NONE = "none"


@dataclass(frozen=True)
class Pair:
    """Two categories that images have both."""

    first: str
    second: str
    images: int
    share: float  # of the images of the rarer one


def multi_label_values(evaluation: MultiLabelEvaluation, spec: ClassifierSpec) -> dict[str, Any]:
    """Return what the templates show, by the names that they give it."""
    categories = spec.categories
    rows = label_rows(evaluation, categories)
    worst = worst_categories(evaluation)
    absent = np.setdiff1d(np.arange(len(categories)), worst)
    ordered = [rows[index] for index in [*worst.tolist(), *absent.tolist()]]
    matrix: list[list[int]] = []
    if len(categories) <= MAX_MATRIX:
        matrix = evaluation.together.tolist()
    return {
        "evaluation": evaluation,
        "spec": spec,
        "verdict": verdict(evaluation, categories),
        "trust": describe_trust(evaluation),
        "rows": ordered[:MAX_ROWS],
        "bins": evaluation.calibration.bins,
        "curves": [
            _curve_chart(categories[index], evaluation.curves[index])
            for index in worst[:MAX_CURVES].tolist()
        ],
        "pairs": list(_pairs(evaluation, categories)),
        "matrix": matrix,
    }


def multi_label_galleries(
    evaluation: MultiLabelEvaluation,
    evaluated: EvaluatedImages,
    colours: Colours,
    explain: object,  # noqa: ARG001, of the most probable category, which may be right
    where_all_are: str = "",
    shown_before: Collection[str] = (),
) -> list[Gallery]:
    """Return the most confident wrong answers, and the labels that are missed by most.

    No image of a file that was `shown_before` is shown.
    """
    outcomes = evaluated.outcomes
    assert isinstance(outcomes, MultiLabelOutcomes)

    def mistakes(cells: np.ndarray) -> list[LabelMistake]:
        first = cells[: MAX_CARDS + len(shown_before)]
        found = label_mistakes(evaluation, evaluated, first)
        return [mistake for mistake in found if mistake.file_name not in shown_before][:MAX_CARDS]

    def cards(found: Sequence[LabelMistake], verb: str) -> list[Card]:
        return [
            Card(
                [thumbnail(evaluated.images.root / mistake.file_name, colours)],
                [
                    Fact(verb, mistake.category, f"{mistake.probability:.1%}"),
                    Fact("labels", mistake.categories or NONE),
                ],
                [mistake.original or mistake.file_name],
            )
            for mistake in found
        ]

    num_wrong = len(evaluation.false_positives)
    num_missed = len(evaluation.missed)
    answers = counted(int(outcomes.answered.sum()), "answer", "answers")
    labels = counted(evaluation.labels, "label", "labels")
    about_wrong = (
        f"{num_wrong:,} of {answers} are wrong. The most confident first{where_all_are}; the"
        " percentage is the category's probability. Check for labels that are missing."
    )
    about_missed = (
        f"{num_missed:,} of {labels} are missed. The least probable first{where_all_are}. Check for"
        " labels that are wrong."
    )
    wrong = cards(mistakes(evaluation.false_positives), "answered")
    missed = cards(mistakes(evaluation.missed), "missed")
    return [
        Gallery("mistakes", "Most confident wrong answers", about_wrong, wrong),
        Gallery("missed", "Missed labels", about_missed, missed),
    ]


def _curve_chart(category: str, curve: Curve) -> Chart:
    """Return the precision of a category by how many of its images are found."""
    recall = np.asarray(curve.recall)
    # The best precision at which at least so many are found.
    best = np.maximum.accumulate(np.asarray(curve.precision)[::-1])[::-1]
    first = np.searchsorted(recall, np.asarray(PERCENTS) / 100 - 1e-9)
    precision = best[first.clip(max=len(best) - 1)].tolist()
    return line_chart(
        category,
        PERCENTS,
        {"precision": precision},
        is_percent=True,
        x_name="percent of its images found",
    )


def _pairs(evaluation: MultiLabelEvaluation, categories: Sequence[str]) -> Iterator[Pair]:
    """Yield the categories that most images have together."""
    upper = np.triu(evaluation.together, 1)
    cells = np.argwhere(upper)
    order = np.argsort(-upper[cells[:, 0], cells[:, 1]], kind="stable")[:MAX_PAIRS]
    support = evaluation.per_class.support
    for first, second in cells[order].tolist():
        images = int(upper[first, second])
        rarer = int(min(support[first], support[second]))
        yield Pair(categories[first], categories[second], images, images / rarer)
