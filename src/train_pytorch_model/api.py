"""`fit` and `load`, for Python and notebooks: the verbs without a command line.

Nothing here exits the process, takes its signals or changes its logging. Errors are those of
`errors`, all of them a `UserError`; PyTorch is imported by the first call that computes.
"""

import difflib
import html
import inspect
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np
from PIL import Image

from train_pytorch_model.config.fit_options import FitOptions
from train_pytorch_model.config.foreign_options import MEANINGS, REMARKS
from train_pytorch_model.config.options import assemble, options_in
from train_pytorch_model.config.recipe import Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.errors import ParameterError
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.formats.trained_directory import REPORT
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, upright_rgb
from train_pytorch_model.image_classifier.predictions import PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.spec import Framing
from train_pytorch_model.inputs.scoring import (
    DATASET,
    open_evaluation_inputs,
    open_images_at_any_depth,
    open_trained_model,
)
from train_pytorch_model.machine.console import shown_on_console
from train_pytorch_model.machine.launch import rank_of
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.stories.fit import fit as run_fit

if TYPE_CHECKING:
    import pandas as pd

    from train_pytorch_model.image_classifier.classifier import ImageClassifier

AnyPath = str | os.PathLike[str]
ImageLike = AnyPath | Image.Image | np.ndarray
PAGE_HEIGHT = 640  # px, in a notebook


@dataclass(frozen=True)
class Evaluated:
    """The evaluation of a model; a notebook shows its page."""

    numbers: Evaluation
    page: str  # HTML

    @property
    def accuracy(self) -> float:
        """Return the fraction of images that are recognized, in [0, 1]."""
        return self.numbers.accuracy

    def __repr__(self) -> str:
        return f"Evaluated({self.numbers.images:,} images: accuracy {self.accuracy:.1%})"

    def _repr_html_(self) -> str:
        return _framed(self.page)


class Model:
    """A trained model; a notebook shows the report on its training."""

    def __init__(self, root: Path, image_size: int | None = None) -> None:
        """Open the directory that training wrote, as `load` does."""
        self.root = root
        self._directory, self._spec = open_trained_model(root, image_size)
        self._classifier: ImageClassifier | None = None

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the names of the categories, by class index."""
        return self._spec.categories

    def predict(self, images: ImageLike | Sequence[ImageLike]) -> "pd.DataFrame":
        """Return a table with the predictions for one or many images.

        They are files, folders of files, PIL images, which become upright and RGB like files, or
        arrays of RGB, uint8, of shape (height, width, 3). The table has a row for each, with the
        columns `image` (its path, or its number), `label`, `probability` in [0, 1], and
        `Scored Probabilities_<category>` for each category, as `score` writes them. An unreadable
        file has no label, and the reason in `error`.
        """
        import pandas as pd

        from train_pytorch_model.image_classifier.classifier import ImageClassifier, best_device
        from train_pytorch_model.networks.build import build_model

        named = list(_named(images))
        framing = self._spec.framing
        if self._classifier is None:
            network = build_model(self._directory, self.categories)
            self._classifier = ImageClassifier(self._spec, network, best_device())
        rows, _, errors = self._classifier.classify(_read(image, framing) for _, image in named)
        best = [self.categories[index] for index in rows.argmax(axis=1)]
        table: dict[str, Any] = {
            "image": [name for name, _ in named],
            "label": [None if error else label for label, error in zip(best, errors, strict=True)],
            "probability": rows.max(axis=1),
        }
        for index, category in enumerate(self.categories):
            table[PROBABILITY_PREFIX + category] = rows[:, index]
        if any(errors):
            table["error"] = errors
        return pd.DataFrame(table)

    def evaluate(self, folder: AnyPath, output: AnyPath | None = None) -> Evaluated:
        """Measure the model on a folder of labelled images.

        `output` is a directory for the tables and the page; by default they are not kept. Raises
        `InvalidDatasetError`, `NotLabeledDatasetError`, `OutputDirectoryError`.
        """
        from train_pytorch_model.distributed.world import World
        from train_pytorch_model.image_classifier.classifier import best_device
        from train_pytorch_model.stories.evaluate import evaluate

        inputs = open_evaluation_inputs(self.root, Path(folder))
        with TemporaryDirectory() as temporary:
            root = Path(temporary, "evaluation") if output is None else Path(output)
            numbers = evaluate(inputs, root, World(0, 1, 0, 1, best_device()))
            assert numbers is not None  # on the main process
            return Evaluated(numbers, (root / PAGE).read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        contents = f"{self._directory.architecture}, {len(self.categories)} categories"
        return f"Model({str(self.root)!r}: {contents})"

    def _repr_html_(self) -> str:
        report = self.root / REPORT
        page = _framed(report.read_text(encoding="utf-8")) if report.exists() else ""
        return f"<code>{html.escape(repr(self))}</code>{page}"


def fit(folder: AnyPath, output: AnyPath | None = None, **options: Any) -> Model:
    """Train and test a classifier on a folder of images.

    It is written to `output`, by default FOLDER-model. The options are those of the command line,
    as `help(fit)` lists them. An interrupted call is resumed by the same call. Raises a
    `UserError`, such as `InvalidDatasetError`, and `ParameterError` for an option that does not
    exist.
    """
    for name in options:
        if name not in _OPTIONS:
            raise _unknown_option(name)
    values = options if output is None else options | {"output": output}
    chosen = assemble(FitOptions, {name: _as_path(name, value) for name, value in values.items()})
    is_main = rank_of(os.environ) == 0
    with shown_on_console(is_main, chosen.quiet), warnings.catch_warnings():
        # Of tqdm, in notebooks without ipywidgets.
        warnings.filterwarnings("ignore", "IProgress not found")
        fitted = run_fit(Path(folder), chosen, stops=_stopped_by_caller)
    return Model(fitted.model)


_OPTIONS = {option.name: option for option in options_in(FitOptions) if option.name != "output"}
_TYPES = {
    name: hint
    for kind in (FitOptions, Recipe, TrainConfig)
    for name, hint in get_type_hints(kind).items()
}


def _signature_of_fit() -> inspect.Signature:
    """Return the signature with each option, its type and default, for `help` and notebooks."""
    signature = inspect.signature(fit)
    *named, _ = signature.parameters.values()
    options = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=_TYPES[name]
        )
        for name, option in _OPTIONS.items()
    ]
    return signature.replace(parameters=[*named, *options])


fit.__signature__ = _signature_of_fit()  # type: ignore[attr-defined]  # of `inspect`


def _unknown_option(name: str) -> ParameterError:
    """Return the error for an option that `fit` does not have, with those that may be meant."""
    meant = [field for field in MEANINGS.get(name, ()) if field in _OPTIONS]
    if not meant:
        meant = difflib.get_close_matches(name, _OPTIONS, n=1)
    hint = f": {REMARKS[name]}" if name in REMARKS else "."
    for option in meant:
        hint += f" Did you mean {option!r}?"
    return ParameterError(f"fit has no option {name!r}{hint}")


def _as_path(name: str, value: Any) -> Any:
    """Return the value of an option; a path, if it names a file or a directory."""
    is_path = Path in get_args(_TYPES[name])
    return Path(value) if is_path and value is not None else value


def _stopped_by_caller() -> AbstractContextManager[StopRequests]:
    """Return what asks a run to stop: nothing, because signals are the caller's."""
    return nullcontext(StopRequests())


def load(trained_model: AnyPath, image_size: int | None = None) -> Model:
    """Open a trained model directory.

    `image_size` in px is for the designer's models, which do not record it. Raises
    `InvalidModelDirectoryError`, `ParameterError`.
    """
    return Model(Path(trained_model), image_size)


def _named(images: ImageLike | Sequence[ImageLike]) -> Iterator[tuple[str, ImageLike]]:
    """Yield the images, also those in folders, each with its path or its number."""
    several = images if isinstance(images, list | tuple) else [images]
    for number, image in enumerate(several):
        if not isinstance(image, str | os.PathLike):
            yield str(number), image
        elif os.path.isdir(image):
            directory, _ = open_images_at_any_depth(Path(image), DATASET)
            for index in range(len(directory)):
                path = directory.path(index)
                yield str(path), path
        else:
            yield str(image), image


def _read(image: ImageLike, framing: Framing) -> Image.Image | str:
    """Return an image in RGB, or the reason why it cannot be read."""
    from train_pytorch_model.image_classifier.pixels import read_pixels, reduce

    try:
        if isinstance(image, str | os.PathLike):
            return Image.fromarray(read_pixels(image, framing.short_side, framing.colours))
        opened = image if isinstance(image, Image.Image) else Image.fromarray(image)
        pixels = np.array(upright_rgb(opened, framing.colours))
        return Image.fromarray(reduce(pixels, framing.short_side))
    except UnreadableImageError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # perhaps it has never been there
            return "there is no such file or folder"
        return str(error)


def _framed(page: str) -> str:
    """Return a page to be shown inside another one."""
    return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{PAGE_HEIGHT}"></iframe>'
