"""`load` and the `Model` that it opens: predictions, evaluations, pages; a registered model."""

import html
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol, get_type_hints

import numpy as np
from PIL import Image

from train_pytorch_model.azure.workspace_options import WorkspaceOptions, workspace_of
from train_pytorch_model.config.given_values import path_of, typed_values
from train_pytorch_model.config.keyword_options import set_signature
from train_pytorch_model.config.options import options_in
from train_pytorch_model.config.table_options import TableOptions
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.formats.outputs import check_output
from train_pytorch_model.formats.reading import META, MalformedFileError
from train_pytorch_model.formats.replacing import EVALUATED
from train_pytorch_model.formats.trained_directory import EVALUATION, REPORT
from train_pytorch_model.image_classifier.predictions import PROBABILITY_PREFIX, SEEN
from train_pytorch_model.inputs.scoring import (
    open_evaluation_inputs,
    open_trained_model,
    with_other_model,
)
from train_pytorch_model.machine.console import shown_on_console
from train_pytorch_model.quality.review_order import MAX_REVIEWED
from train_pytorch_model.quality.suspects import SUSPECTS, Suspect
from train_pytorch_model.reports.shown import Evaluated, Page, read_evaluation, read_table

if TYPE_CHECKING:
    import pandas as pd

    from train_pytorch_model.image_classifier.classifier import ImageClassifier
    from train_pytorch_model.stories.watch import Watched

AnyPath = str | os.PathLike[str]


class Array(Protocol):
    """What NumPy makes an array of: its own, PyTorch's tensors, columns of pandas."""

    def __array__(self) -> np.ndarray:
        """Return it as an array."""
        ...


MOVED_HINT = "If the directory has been moved, `load` it where it is now."
ImageLike = AnyPath | bytes | BinaryIO | Image.Image | Array


class Model:
    """A trained model; a notebook shows the report on its training."""

    def __init__(self, root: Path, image_size: int | None = None) -> None:
        """Open the directory that training wrote, as `load` does.

        Its weights are read now: predictions hold also when the directory has been moved or trained
        anew.
        """
        from train_pytorch_model.inference.random_state import kept_random_state
        from train_pytorch_model.networks.build import build_model

        self.root = root.absolute()  # a notebook may change its directory
        self._directory, self._spec = open_trained_model(self.root, image_size)
        with kept_random_state():
            self._network = build_model(self._directory, self.categories)
        self._classifier: ImageClassifier | None = None

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the names of the categories, by class index."""
        return self._spec.categories

    @property
    def evaluation(self) -> Evaluated | None:
        """Return the evaluation on the test images that `fit` has kept apart; None without any.

        Raises `InvalidModelDirectoryError` if it is damaged.
        """
        if self.root.exists() and not (self.root / EVALUATION / META).exists():
            return None
        with self._as_user_error():
            return read_evaluation(self.root / EVALUATION)

    @property
    def accuracy(self) -> float | None:
        """Return the accuracy on the test images, in [0, 1]; None without any."""
        evaluation = self.evaluation
        return evaluation.accuracy if evaluation else None

    @property
    def suspects(self) -> "pd.DataFrame":
        """Return a table of images whose category is probably wrong, the most suspicious first.

        Without any it has no rows. Raises `InvalidModelDirectoryError` if it is damaged.
        """
        import pandas as pd

        if self.root.exists() and not (self.root / SUSPECTS).exists():
            return pd.DataFrame(columns=[field.name for field in fields(Suspect)])
        with self._as_user_error():
            return read_table(self.root, SUSPECTS, Suspect)

    @property
    def report(self) -> Page | None:
        """Return the report on the training, with its `path`; None for the designer's models.

        Raises `InvalidModelDirectoryError` if the directory has been moved.
        """
        if not self.root.exists():
            raise self._directory.error("there is no such directory.", MOVED_HINT)
        page = Page(self.root / REPORT)
        return page if page.path.exists() else None

    @contextmanager
    def _as_user_error(self) -> Iterator[None]:
        """Raise `InvalidModelDirectoryError` for a file of the directory that cannot be read."""
        try:
            yield
        except MalformedFileError as error:
            raise self._directory.error(str(error), MOVED_HINT) from error

    def predict(
        self, images: ImageLike | Iterable[ImageLike], *, watch: bool = False
    ) -> "pd.DataFrame":
        """Return a table with the predictions for one or many images.

        They are files, folders of files, the bytes of files, open files, PIL images, arrays or
        tensors: uint8, uint16 or floats in [0, 1], grey, RGB or RGBA, of shape (height, width),
        with channels behind or before these, and batches of them. `images` may be any iterable of
        these, such as a generator, of which a batch is in memory at a time.

        The table has a row for each, with the columns `image` (its path, or its number), `label`,
        `probability` in [0, 1], and `Scored Probabilities_<category>` for each category, as `score`
        writes them. Of a model of images with any number of categories, the label is a list of
        them, and the probability that of the most probable one. What cannot be read or taken has no
        label, and the reason in `error`; raises `ParameterError` for such an image if it is the
        only one. With `watch`, the table has what `model.watch` compares, too.

        A large JPEG is decoded at a fraction of its size, and its pixels as an array are averaged
        instead: the same photograph's probabilities differ by about 0.002.
        """
        import pandas as pd

        from train_pytorch_model.image_classifier.classifier import ImageClassifier, best_device
        from train_pytorch_model.inference.given_images import (
            given_images,
            given_shape,
            read_image,
        )

        names = []
        shapes = []

        def read() -> Iterator[Image.Image | str]:
            for image in given_images(images):
                names.append(image.name)
                found = read_image(image, self._spec.framing)
                if watch:
                    shapes.append(given_shape(image, found))
                yield found

        if self._classifier is None:
            self._classifier = ImageClassifier(self._spec, self._network, best_device())
        classified = self._classifier.classify(read(), watch)
        rows = classified.probabilities
        errors = classified.errors
        answers = self._spec.answers.labels(rows, self.categories)
        labels = [
            answer if error is None else None for answer, error in zip(answers, errors, strict=True)
        ]
        # A table of text cannot hold undecodable bytes of names.
        names = [name.encode(errors="backslashreplace").decode() for name in names]
        table: dict[str, Any] = {"image": names, "label": labels, "probability": rows.max(axis=1)}
        for index, category in enumerate(self.categories):
            table[PROBABILITY_PREFIX + category] = rows[:, index]
        if any(error is not None for error in errors):
            table["error"] = errors
        if watch:
            values = (classified.energies, classified.brightness, *np.reshape(shapes, (-1, 2)).T)
            table |= dict(zip(SEEN, values, strict=True))
        return pd.DataFrame(table)

    def watch(
        self, tables: "AnyPath | pd.DataFrame | Iterable[AnyPath | pd.DataFrame]"
    ) -> "Watched":
        """Tell whether new images are like the validation images; estimate the accuracy on them.

        Tables are directories that `score` has written, and answers of `predict` or of a served
        model with the parameter `watch`, as files or DataFrames. Raises `InvalidDatasetError`, and
        `InvalidModelDirectoryError` for a model that has not kept what its images were like.
        """
        import pandas as pd

        from train_pytorch_model.stories.watch import watch

        if isinstance(tables, str | os.PathLike | pd.DataFrame):
            tables = [tables]
        if not isinstance(tables, Iterable):
            raise ParameterError(
                "`tables` should be the path of a directory that `score` has written, a DataFrame,"
                f" or several of them; it is {tables!r}."
            )
        parts = [
            table if isinstance(table, pd.DataFrame) else path_of("tables", table)
            for table in tables
        ]
        with shown_on_console(quiet=True):
            return watch(self._directory, parts)

    def evaluate(
        self,
        folder: AnyPath,
        output: AnyPath | None = None,
        *,
        label_column: str | None = None,
        file_column: str | None = None,
        split_column: str | None = None,
        against: "Model | AnyPath | None" = None,
        overwrite: bool = False,
    ) -> Evaluated:
        """Measure the model on a folder of labelled images, or on the images of a table.

        `output` is a directory for the tables and the page; by default they are not kept; with
        `overwrite`, a whole evaluation there is replaced. The
        columns are those of the table; with `split_column`, only the images of the test count.
        `against` is another model of the same categories, or its directory: the page and `metrics`
        say which one is better on these images, and how sure that is. Raises
        `InvalidDatasetError`, `NotLabeledDatasetError`, `OutputDirectoryError`, `ParameterError`.
        """
        from train_pytorch_model.distributed.world import World
        from train_pytorch_model.image_classifier.classifier import best_device
        from train_pytorch_model.inference.random_state import kept_random_state
        from train_pytorch_model.stories.evaluate import evaluate

        table = _table_options(
            label_column=label_column, file_column=file_column, split_column=split_column
        )
        inputs = open_evaluation_inputs(self.root, path_of("folder", folder), table)
        if against is not None:
            path = against.root if isinstance(against, Model) else path_of("against", against)
            inputs = with_other_model(inputs, path)
        world = World(0, 1, 0, 1, best_device())
        temporary_folder = TemporaryDirectory()
        with temporary_folder as temporary, kept_random_state(), shown_on_console(quiet=True):
            root = Path(temporary, "evaluation") if output is None else path_of("output", output)
            check_output(root, "output", kind=EVALUATED, overwrite=overwrite)
            evaluate(inputs, root, world, overwrite=overwrite)
            return read_evaluation(root)

    def register(self, name: str, **workspace: Any) -> str:
        """Register the model in Azure ML, with its card; return it as `azureml:NAME:VERSION`.

        The options name the workspace, as those of `submit` do. Raises `ParameterError` and
        `ServiceError`.
        """
        name = typed_values({"name": name}, {"name": str})["name"]
        address = workspace_of("register", workspace)

        from train_pytorch_model.stories.register_model import register_model

        with shown_on_console():
            return register_model(self.root, name, address)

    def review(
        self,
        folder: AnyPath,
        output: AnyPath = "review.html",
        *,
        corrections: AnyPath | None = None,
        num_images: int = MAX_REVIEWED,
        label_column: str | None = None,
        file_column: str | None = None,
        split_column: str | None = None,
    ) -> Page:
        """Write a page of the images of a folder that most need a decision, which a notebook shows.

        They are suspects, images that look alike with different categories, images unlike those of
        the training, and images without a category. The page saves the decisions as
        corrections.csv, for `fit(folder, corrections=…)`; earlier `corrections`, by default the
        model's own, are not asked again. `output` is replaced if it is such a page. Raises
        `InvalidDatasetError`, `OutputDirectoryError`, `ParameterError`.
        """
        from train_pytorch_model.inference.random_state import kept_random_state
        from train_pytorch_model.stories.write_review import write_review

        table = _table_options(
            label_column=label_column, file_column=file_column, split_column=split_column
        )
        values = {"corrections": corrections, "num_images": num_images}
        typed = typed_values(values, {"corrections": Path | None, "num_images": int})
        page = path_of("output", output)
        with kept_random_state(), shown_on_console(quiet=True):
            write_review(
                self.root,
                path_of("folder", folder),
                page,
                table,
                typed["corrections"],
                typed["num_images"],
            )
        return Page(page)

    def __repr__(self) -> str:
        contents = f"{self._directory.architecture}, {len(self.categories)} categories"
        return f"Model({str(self.root)!r}: {contents})"

    def _repr_html_(self) -> str:
        report = self.report
        page = report._repr_html_() if report else ""
        return f"<code>{html.escape(repr(self))}</code>{page}"


def _table_options(**columns: str | None) -> TableOptions:
    """Return the options of a table. Raises `ParameterError` for what is no name of a column."""
    return TableOptions(**typed_values(columns, get_type_hints(TableOptions)))


def load(trained_model: AnyPath, image_size: int | None = None) -> Model:
    """Open a trained model directory.

    `image_size` in px is for the designer's models, which do not record it. Raises
    `InvalidModelDirectoryError`, `ParameterError`.
    """
    types = {"trained_model": Path, "image_size": int | None}
    values = {"trained_model": trained_model, "image_size": image_size}
    return Model(*typed_values(values, types).values())


set_signature(Model.register, options_in(WorkspaceOptions), get_type_hints(WorkspaceOptions))
