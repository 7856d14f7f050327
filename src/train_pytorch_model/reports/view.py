"""How pages show predictions: of one category an image, or of any number of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train_pytorch_model.evaluation.directory import CONFUSION_MATRIX
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.tables import EvaluatedImages, confusion_matrix
from train_pytorch_model.formats.writing import csv_text
from train_pytorch_model.reports.evaluation_values import evaluation_values, files_by_cell
from train_pytorch_model.reports.galleries import (
    IN_TABLE,
    ON_PAGE,
    Correcting,
    prediction_galleries,
)
from train_pytorch_model.reports.gallery import Gallery
from train_pytorch_model.reports.multi_label_view import multi_label_galleries, multi_label_values

MAX_MATRIX = 1000  # categories; a larger matrix, nearly all zeros, makes a file above 2 MB


@dataclass(frozen=True)
class View:
    """The parts of pages about evaluations of one kind."""

    report: str  # the template of the page of a training
    evaluation: str  # the template of the page of an evaluation
    # What the templates show, by the names that they give it: see `evaluation_values`.
    values: Callable[..., dict[str, Any]]
    # The pictures of mistakes and others: see `prediction_galleries`.
    galleries: Callable[..., list[Gallery]]
    # The names of files behind cells of a table, by cell.
    files: Callable[[EvaluatedImages], Mapping[str, Sequence[str]]]
    # The tables beside the page of a training, name → text, by evaluation and categories.
    tables: Callable[..., Mapping[str, str]]
    correcting: Correcting  # what to do about a wrong label


def _confusion_table(evaluation: Evaluation, categories: Sequence[str]) -> Mapping[str, str]:
    if len(categories) > MAX_MATRIX:
        return {}
    return {CONFUSION_MATRIX: csv_text(confusion_matrix(evaluation, categories))}


ONE_CATEGORY = View(
    report="report.html",
    evaluation="evaluation.html",
    values=evaluation_values,
    galleries=prediction_galleries,
    files=files_by_cell,
    tables=_confusion_table,
    correcting=ON_PAGE,
)
ANY_CATEGORIES = View(
    report="multi_label_report.html",
    evaluation="multi_label_evaluation.html",
    values=multi_label_values,
    galleries=multi_label_galleries,
    files=lambda _: {},
    tables=lambda *_: {},
    correcting=IN_TABLE,
)
_VIEWS = {Evaluation: ONE_CATEGORY, MultiLabelEvaluation: ANY_CATEGORIES}


def view_of(evaluation: AnyEvaluation) -> View:
    """Return how pages show an evaluation."""
    return _VIEWS[type(evaluation)]
