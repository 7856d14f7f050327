"""`fit`: the verb of this name, called from Python."""

import difflib
import os
import warnings
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, TypedDict, Unpack

from train_pytorch_model.api.model import Model
from train_pytorch_model.commands.fit import Fit
from train_pytorch_model.image_classifier.preprocessing import FramingMode
from train_pytorch_model.machine.stop_requests import StopRequests
from train_pytorch_model.words.config import TrainConfig
from train_pytorch_model.words.errors import ParameterError, TrainingError
from train_pytorch_model.words.recipe import Augmentation, OptimizerName, PrecisionName, Recipe


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
    weights_file: str | os.PathLike[str] | None
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
    optimizer: OptimizerName
    precision: PrecisionName
    mean: tuple[float, float, float] | None
    std: tuple[float, float, float] | None


def fit(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    **options: Unpack[FitOptions],
) -> Model:
    """Train and test a classifier on a folder of images, and write it to `output`, by default FOLDER-model.

    The options are those of the command line. An interrupted call is resumed by the same call. Raises a
    `UserError`, such as `InvalidDatasetError`, and `ParameterError` for an option that does not exist.
    """
    command = _command(Path(folder), None if output is None else Path(output), dict(options))
    # Of tqdm, which MLflow imports: it would appear in every notebook without ipywidgets.
    warnings.filterwarnings("ignore", "IProgress not found")
    try:
        command.run(stops=lambda: nullcontext(StopRequests()))  # Ctrl-C is the caller's
    except SystemExit as end:  # the worker processes have failed, and said why
        raise TrainingError(f"The processes of the run ended with status {end.code}.") from end
    return Model(command.model)


def _command(folder: Path, output: Path | None, options: dict[str, Any]) -> Fit:
    """Return the command with these options. Raises `ParameterError`."""
    of_recipe, of_config = ({each.name for each in fields(kind)} for kind in (Recipe, TrainConfig))
    known = FitOptions.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise ParameterError(
                f"fit has no option {name!r}." + "".join(f" Did you mean {each!r}?" for each in near)
            )
    recipe = {name: value for name, value in options.items() if name in of_recipe}
    config = {name: value for name, value in options.items() if name in of_config}
    rest = {name: value for name, value in options.items() if name not in of_recipe | of_config}
    if rest.get("weights_file") is not None:
        rest["weights_file"] = Path(rest["weights_file"])
    return Fit(
        folder=folder, output=output, parameters=TrainConfig(**config), recipe=Recipe(**recipe), **rest
    )
