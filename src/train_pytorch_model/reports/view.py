"""How pages show predictions: of one category an image, or of any number of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.evaluation.multi_label import AnyEvaluation, MultiLabelEvaluation
from train_pytorch_model.evaluation.tables import EvaluatedImages
from train_pytorch_model.image_classifier.colours import Colours
from train_pytorch_model.image_classifier.spec import ClassifierSpec
from train_pytorch_model.reports.evaluation_values import evaluation_values, files_by_cell
from train_pytorch_model.reports.galleries import prediction_galleries
from train_pytorch_model.reports.gallery import Gallery, Heat
from train_pytorch_model.reports.multi_label_view import multi_label_galleries, multi_label_values

Explain = Callable[[np.ndarray], Sequence[Heat | None]]


class View(ABC):
    """Abstract. The parts of pages about an evaluation."""

    report: str  # the template of the page of a training
    evaluation: str  # the template of the page of an evaluation

    @abstractmethod
    def values(self, evaluation: AnyEvaluation, spec: ClassifierSpec) -> dict[str, Any]:
        """Return what the templates show, by the names that they give it."""

    @abstractmethod
    def galleries(
        self,
        evaluation: AnyEvaluation,
        evaluated: EvaluatedImages,
        colours: Colours,
        explain: Explain,
        where_all_are: str = "",
        shown_before: Collection[str] = (),
    ) -> list[Gallery]:
        """Return the pictures of mistakes and others, as `prediction_galleries` does."""

    @abstractmethod
    def files(self, evaluated: EvaluatedImages) -> Mapping[str, Sequence[str]]:
        """Return the names of files behind cells of a table, by cell."""


class SingleLabelView(View):
    """Images have one category each."""

    report = "report.html"
    evaluation = "evaluation.html"

    def values(self, evaluation: AnyEvaluation, spec: ClassifierSpec) -> dict[str, Any]:
        assert isinstance(evaluation, Evaluation)
        return evaluation_values(evaluation, spec)

    def galleries(
        self,
        evaluation: AnyEvaluation,
        evaluated: EvaluatedImages,
        colours: Colours,
        explain: Explain,
        where_all_are: str = "",
        shown_before: Collection[str] = (),
    ) -> list[Gallery]:
        assert isinstance(evaluation, Evaluation)
        return prediction_galleries(
            evaluation, evaluated, colours, explain, where_all_are, shown_before
        )

    def files(self, evaluated: EvaluatedImages) -> Mapping[str, Sequence[str]]:
        return files_by_cell(evaluated)


class MultiLabelView(View):
    """Images have any number of categories."""

    report = "multi_label_report.html"
    evaluation = "multi_label_evaluation.html"

    def values(self, evaluation: AnyEvaluation, spec: ClassifierSpec) -> dict[str, Any]:
        assert isinstance(evaluation, MultiLabelEvaluation)
        return multi_label_values(evaluation, spec)

    def galleries(
        self,
        evaluation: AnyEvaluation,
        evaluated: EvaluatedImages,
        colours: Colours,
        explain: Explain,  # noqa: ARG002, of the most probable category, which may be right
        where_all_are: str = "",
        shown_before: Collection[str] = (),
    ) -> list[Gallery]:
        assert isinstance(evaluation, MultiLabelEvaluation)
        return multi_label_galleries(evaluation, evaluated, colours, where_all_are, shown_before)

    def files(self, evaluated: EvaluatedImages) -> Mapping[str, Sequence[str]]:  # noqa: ARG002
        return {}


def view_of(evaluation: AnyEvaluation) -> View:
    """Return how pages show an evaluation."""
    return MultiLabelView() if isinstance(evaluation, MultiLabelEvaluation) else SingleLabelView()
