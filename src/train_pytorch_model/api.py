"""`fit` and `load`, for Python and notebooks: the verbs without a command line.

Nothing here exits the process or takes its signals. Errors are those of `words.errors`, all of them
a `UserError`; PyTorch is imported by the first call that computes.
"""

import difflib
import html
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
from PIL import Image

from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.commands.program import NAMES, REMARKS
from train_pytorch_model.config.recipe import Augmentation, OptimizerOrAuto, PrecisionName, Recipe
from train_pytorch_model.config.train_config import TrainConfig
from train_pytorch_model.errors import ParameterError, TrainingError
from train_pytorch_model.evaluation.directory import PAGE
from train_pytorch_model.evaluation.metrics import Evaluation
from train_pytorch_model.formats.image_directory import open_image_directory
from train_pytorch_model.formats.trained_directory import REPORT
from train_pytorch_model.image_classifier.decoding import UnreadableImageError, upright_rgb
from train_pytorch_model.image_classifier.predictions import PROBABILITY_PREFIX
from train_pytorch_model.image_classifier.spec import Framing, FramingMode
from train_pytorch_model.inputs.opening import DATASET, open_evaluation_inputs, open_trained_model
from train_pytorch_model.machine.stop_requests import StopRequests

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
        """In [0, 1]."""
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
        """By class index."""
        return self._spec.categories

    def predict(self, images: ImageLike | Sequence[ImageLike]) -> "pd.DataFrame":
        """Predict images: files, folders of files, PIL images, or arrays (H, W, 3), uint8, RGB; one
        or many.

        PIL images become upright and RGB like files.

        Returns a row for each: `image` (its path, or its number), `label`, `probability` in [0, 1],
        and a column `Scored Probabilities_<category>` for each category, as `score` writes them. A
        file that cannot be read has no label, and the reason in `error`.
        """
        import pandas as pd

        from train_pytorch_model.image_classifier.classifier import ImageClassifier, best_device
        from train_pytorch_model.networks.build import build_model

        named, framing = list(_named(images)), self._spec.framing
        if self._classifier is None:
            network = build_model(self._directory, self.categories)
            self._classifier = ImageClassifier(self._spec, network, best_device())
        rows, _, errors = self._classifier.classify(_read(image, framing) for _, image in named)
        best = zip(rows.argmax(axis=1).tolist(), errors, strict=True)
        table = {
            "image": [name for name, _ in named],
            "label": [self.categories[index] if error is None else None for index, error in best],
            "probability": rows.max(axis=1),
            **{
                PROBABILITY_PREFIX + name: rows[:, index]
                for index, name in enumerate(self.categories)
            },
        }
        return pd.DataFrame(table | {"error": errors} if any(errors) else table)

    def evaluate(self, folder: AnyPath, output: AnyPath | None = None) -> Evaluated:
        """Measure the model on a folder of labelled images; keeps the tables and the page in
        `output`.

        Raises `InvalidDatasetError`, `NotLabeledDatasetError`, `OutputDirectoryError`.
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
        return f"Model({str(self.root)!r}: {self._directory.architecture}, {len(self.categories)} categories)"

    def _repr_html_(self) -> str:
        report = self.root / REPORT
        page = report.read_text(encoding="utf-8") if report.exists() else ""
        return f"<code>{html.escape(repr(self))}</code>{_framed(page) if page else ''}"


class FitOptions(TypedDict, total=False):
    """The options of `fit`, as on its command line."""

    epochs: int
    batch_size: int
    warmup_epochs: int
    learning_rate: float
    random_seed: int
    patience: int
    print_frequency: int
    architecture: str
    pretrained: bool
    weights: str | None
    weights_file: AnyPath | None
    zero_init_residual: bool
    memory_efficient: bool
    from_scratch: bool
    fresh: bool
    quiet: bool
    image_size: int | tuple[int, int] | None
    training_size: int | tuple[int, int] | None
    early_size: int | tuple[int, int] | None
    crop_fraction: float | None
    framing: FramingMode
    augmentation: Augmentation
    crop_area: float
    horizontal_flip: bool | str
    label_smoothing: float | None
    cutmix: float | None
    balance_classes: bool
    freeze_backbone: bool
    white_level: int | None
    background: tuple[int, int, int]
    optimizer: OptimizerOrAuto
    precision: PrecisionName
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None


def fit(folder: AnyPath, output: AnyPath | None = None, **options: Unpack[FitOptions]) -> Model:
    """Train and test a classifier on a folder of images, and write it to `output`, by default
    FOLDER-model.

    The options are those of the command line. An interrupted call is resumed by the same call.
    Raises a `UserError`, such as `InvalidDatasetError`, and `ParameterError` for an option that
    does not exist.
    """
    known, given = FitOptions.__annotations__, dict[str, Any](options)
    for name in given:
        if name not in known:
            near = [each for each in NAMES.get(name, "").split() if each in known]
            near = near or difflib.get_close_matches(name, known, n=1)
            hint = f": {REMARKS[name]}" if name in REMARKS else "."
            hint += "".join(f" Did you mean {each!r}?" for each in near)
            raise ParameterError(f"fit has no option {name!r}{hint}")

    def pop(kind: type[Recipe | TrainConfig]) -> dict[str, Any]:
        return {each.name: given.pop(each.name) for each in fields(kind) if each.name in given}

    paths = {"output": output, "weights_file": given.get("weights_file")}
    given |= {name: Path(path) for name, path in paths.items() if path is not None}
    parameters, recipe = TrainConfig(**pop(TrainConfig)), Recipe(**pop(Recipe))
    command = Fit(folder=Path(folder), parameters=parameters, recipe=recipe, **given)
    warnings.filterwarnings(
        "ignore", "IProgress not found"
    )  # of tqdm, in notebooks without ipywidgets
    try:
        command.run(stops=lambda: nullcontext(StopRequests()))  # Ctrl-C is the caller's
    except SystemExit as end:  # the worker processes have failed, and said why
        raise TrainingError(f"The processes of the run ended with status {end.code}.") from end
    return Model(command.model)


def load(trained_model: AnyPath, image_size: int | None = None) -> Model:
    """Open a trained model directory; `image_size` in px is for the designer's, which do not record
    it.

    Raises `InvalidModelDirectoryError`, `ParameterError`.
    """
    return Model(Path(trained_model), image_size)


def _named(images: ImageLike | Sequence[ImageLike]) -> Iterator[tuple[str, ImageLike]]:
    """Yield the images, also those in folders, each with its path or its number."""
    for number, image in enumerate(images if isinstance(images, list | tuple) else [images]):
        if not isinstance(image, str | os.PathLike):
            yield str(number), image
        elif os.path.isdir(image):
            directory = open_image_directory(Path(image), DATASET)
            yield from ((str(path), path) for path in map(directory.path, range(len(directory))))
        else:
            yield str(image), image


def _read(image: ImageLike, framing: Framing) -> Image.Image | str:
    """Return an image in RGB, or the reason why it cannot be read."""
    from train_pytorch_model.image_classifier.pixels import read_pixels, reduce

    try:
        if isinstance(image, str | os.PathLike):
            return Image.fromarray(read_pixels(image, framing.short_side, framing.colours))
        opened = image if isinstance(image, Image.Image) else Image.fromarray(image)
        return Image.fromarray(
            reduce(np.array(upright_rgb(opened, framing.colours)), framing.short_side)
        )
    except UnreadableImageError as error:
        is_missing = isinstance(
            error.__cause__, FileNotFoundError
        )  # perhaps it has never been there
        return "there is no such file or folder" if is_missing else str(error)


def _framed(page: str) -> str:
    """Return a page to be shown inside another one."""
    return f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{PAGE_HEIGHT}"></iframe>'
