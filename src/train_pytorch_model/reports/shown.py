"""What a model directory says about a model, as Python programs read it and notebooks show it."""

import html
import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from train_pytorch_model.evaluation.directory import METRICS, MISTAKES, PAGE
from train_pytorch_model.evaluation.multi_label_tables import LabelMistake
from train_pytorch_model.evaluation.tables import Prediction
from train_pytorch_model.formats.reading import file_inside, read_bounded, read_json
from train_pytorch_model.formats.spreadsheet_cells import as_meant
from train_pytorch_model.image_classifier.answers import AnyCategories, OneCategory

if TYPE_CHECKING:
    import pandas as pd

PAGE_HEIGHT = 640  # px, in a notebook
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Page:
    """A page; a notebook shows it, a browser opens its `path`."""

    path: Path

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def _repr_html_(self) -> str:
        return framed(self.path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a model on labelled images; a notebook shows its page."""

    metrics: Mapping[str, Any]
    """The entries of metrics.json."""
    mistakes: "pd.DataFrame"
    """The images that are not recognized, the most confident first; of images with any number of
    categories, the wrong answers and the missed labels."""
    page: str  # HTML

    @property
    def accuracy(self) -> float:
        """Return the fraction of images that are recognized, in [0, 1], with all categories."""
        accuracy: float = self.metrics["accuracy"]
        return accuracy

    @property
    def per_class(self) -> "pd.DataFrame":
        """Return a table with precision, recall and number of images of each category."""
        import pandas as pd

        return pd.DataFrame(self.metrics["per_class"])

    def __repr__(self) -> str:
        measure = _kind_of(self.metrics).measure
        return f"Evaluated({self.metrics['images']:,} images: {measure} {self.accuracy:.1%})"

    def _repr_html_(self) -> str:
        return framed(self.page)


def read_evaluation(root: Path) -> Evaluated:
    """Read an evaluation directory. Raises `MalformedFileError`."""
    page = read_bounded(file_inside(root, PAGE), MAX_BYTES).decode("utf-8", "replace")
    metrics = read_json(file_inside(root, METRICS), dict[str, Any])
    mistakes = read_table(root, MISTAKES, _kind_of(metrics).mistake)
    return Evaluated(metrics, mistakes, page)


@dataclass(frozen=True)
class _Kind:
    """What an evaluation of one kind has."""

    measure: str  # what its accuracy is called
    mistake: type  # a row of its mistakes


def _kind_of(metrics: Mapping[str, Any]) -> _Kind:
    """Return the kind of an evaluation by the entries of its metrics.json."""
    if metrics.get("multi_label"):
        return _Kind(AnyCategories.measure, LabelMistake)
    return _Kind(OneCategory.measure, Prediction)


def read_table(root: Path, name: str, row: type) -> "pd.DataFrame":
    """Read a table in a directory, whose columns are the fields of `row`.

    Texts are as they were meant, such as a category that is called NA, and names that a spreadsheet
    would compute. Raises `MalformedFileError`.
    """
    import pandas as pd

    data = read_bounded(file_inside(root, name), MAX_BYTES).decode("utf-8", "backslashreplace")
    kinds = get_type_hints(row)
    table = pd.read_csv(io.StringIO(data), dtype=kinds, keep_default_na=False)
    texts = [name for name in table if kinds.get(name) is str]
    table[texts] = table[texts].map(as_meant)
    return table


def framed(page: str) -> str:
    """Return a page to be shown inside another one."""
    return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{PAGE_HEIGHT}"></iframe>'
