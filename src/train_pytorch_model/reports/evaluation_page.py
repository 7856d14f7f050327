"""The page of an evaluation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train_pytorch_model.evaluation.comparison import Comparison
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.reports.evaluation_values import without_images
from train_pytorch_model.reports.gallery import Gallery
from train_pytorch_model.reports.page import render_page
from train_pytorch_model.reports.page_links import PageLink
from train_pytorch_model.reports.view import view_of


@dataclass(frozen=True)
class EvaluationReport:
    """The contents of the page."""

    spec: ClassifierSpec
    dataset_name: str
    evaluation: AnyEvaluation
    galleries: Sequence[Gallery]
    files: Mapping[str, Sequence[str]]  # as of `View.files`
    num_unreadable: int
    look_alikes: str = ""  # how many of the images look like training images, in words
    training_report: str = ""  # where the report on the training is, relative to the page
    comparison: Comparison | None = None  # with another model
    links: Sequence[PageLink] = ()  # to other pages


def render_evaluation(report: EvaluationReport) -> str:
    """Render the page. Names of files and categories may contain anything."""
    evaluation = report.evaluation
    view = view_of(evaluation)
    return render_page(
        view.evaluation,
        **view.values(evaluation, report.spec),
        dataset_name=report.dataset_name,
        images=evaluation.images,
        absent=without_images(evaluation.per_class.support, report.spec.categories),
        num_unreadable=report.num_unreadable,
        look_alikes=report.look_alikes,
        training_report=report.training_report,
        **_comparison_values(report),
        pages=report.links,
        galleries=report.galleries,
        files=report.files,
    )


def _comparison_values(report: EvaluationReport) -> dict[str, Any]:
    """Return what the template shows of another model."""
    comparison = report.comparison
    if comparison is None:
        return {"compared": "", "compared_rows": (), "compared_verdict": ""}
    assert isinstance(report.evaluation, Evaluation)
    return {
        "compared": comparison.name,
        "compared_rows": comparison.rows(report.evaluation),
        "compared_verdict": comparison.describe(),
    }
